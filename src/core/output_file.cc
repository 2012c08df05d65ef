#include "src/core/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "src/core/file_lock.h"

namespace trine {
namespace {

// Opens `temporary` for this process alone; nullptr, errno being the reason (EWOULDBLOCK: another
// has it). What a killed process left of it is overwritten.
std::FILE* OpenAlone(const std::string& temporary) {
  for (;;) {
    // Neither through a link to somebody's file nor, waiting for a reader, into a pipe.
    const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    const int fd = open(temporary.c_str(), flags, 0644);
    if (fd < 0) return nullptr;
    const Lock lock = TryLock(fd, temporary);
    if (lock == Lock::kTaken && ftruncate(fd, 0) == 0) return fdopen(fd, "wb");
    const int reason = lock == Lock::kBusy ? EWOULDBLOCK : errno;
    close(fd);
    errno = reason;
    if (lock != Lock::kMoved) return nullptr;
  }
}

}  // namespace

Result<OutputFile> OutputFile::Create(const std::string& path) {
  std::error_code error, ignored;
  const std::filesystem::path real = std::filesystem::weakly_canonical(path, error);
  if (error) return BadInput(path + ": cannot create: " + error.message());
  if (std::filesystem::exists(real, ignored) && !std::filesystem::is_regular_file(real, ignored)) {
    return BadInput(path + " exists and is not a regular file; name another");
  }
  const std::string temporary = real.string() + ".partial";
  std::FILE* file = OpenAlone(temporary);
  if (file != nullptr) return OutputFile(real.string(), temporary, file);
  if (errno == EWOULDBLOCK) {
    return BadInput(path + " is being written by another process; wait for it or name another");
  }
  return BadInput(path + ": cannot create: " + std::strerror(errno));
}

OutputFile::OutputFile(std::string path, std::string temporary, std::FILE* file)
    : path_(std::move(path)), temporary_(std::move(temporary)), file_(file) {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      file_(std::exchange(other.file_, nullptr)) {}

OutputFile::~OutputFile() {
  if (file_ == nullptr) return;
  std::remove(temporary_.c_str());  // while it is locked
  std::fclose(file_);
}

Status OutputFile::Failure(const char* what) const {
  return BadInput(path_ + ": cannot " + what + ": " + std::strerror(errno));
}

Status OutputFile::Write(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) return Failure("write");
  return {};
}

Status OutputFile::Commit() {
  if (std::fflush(file_) != 0 || fsync(fileno(file_)) != 0) return Failure("write");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return Failure("rename");
  std::fclose(std::exchange(file_, nullptr));
  return {};
}

}  // namespace trine
