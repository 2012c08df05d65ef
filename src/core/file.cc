#include "src/core/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace trine {

Result<File> File::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return BadInput(path + ": cannot open: " + std::strerror(errno));
  struct stat info = {};
  const bool known = fstat(fd, &info) == 0;
  File file(path, fd, info.st_size);
  if (known && S_ISDIR(info.st_mode)) {
    return BadInput(path + " is a directory; name a .gguf file in it");
  }
  if (!known || !S_ISREG(info.st_mode)) return BadInput(path + " is not a regular file");
  return file;
}

File::File(std::string path, int fd, int64_t size) : path_(std::move(path)), fd_(fd), size_(size) {}

File::File(File&& other) noexcept {
  *this = std::move(other);
}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) close(fd_);
}

Status File::Read(int64_t offset, int64_t n, std::byte* out) const {
  for (int64_t done = 0; done < n;) {
    const ssize_t got = pread(fd_, out + done, static_cast<size_t>(n - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return BadInput(path_ + ": reading " + std::to_string(n) + " bytes at " +
                      std::to_string(offset) + ": " + std::strerror(errno));
    }
    if (got == 0) {
      return BadInput(path_ + ": the file ends at " + std::to_string(offset + done) + "; " +
                      std::to_string(offset + n) + " bytes expected");
    }
    done += got;
  }
  return {};
}

}  // namespace trine
