#include "src/core/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace trine {

Result<OutputFile> OutputFile::Create(const std::string& path) {
  std::error_code error, ignored;
  const std::filesystem::path real = std::filesystem::weakly_canonical(path, error);
  if (error) return BadInput(path + ": cannot create: " + error.message());
  if (std::filesystem::exists(real, ignored) && !std::filesystem::is_regular_file(real, ignored)) {
    return BadInput(path + " exists and is not a regular file; name another");
  }
  const std::string temporary = real.string() + ".tmp" + std::to_string(getpid());
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (file == nullptr) return BadInput(path + ": cannot create: " + std::strerror(errno));
  return OutputFile(real.string(), temporary, file);
}

OutputFile::OutputFile(std::string path, std::string temporary, std::FILE* file)
    : path_(std::move(path)), temporary_(std::move(temporary)), file_(file) {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      file_(std::exchange(other.file_, nullptr)) {}

OutputFile::~OutputFile() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  std::remove(temporary_.c_str());
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
