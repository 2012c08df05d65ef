// File: a regular file opened for positioned reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "src/core/result.h"

namespace trine {

class File {
 public:
  // Errors name the path and what is wrong: absent, a directory, not readable.
  static Result<File> Open(const std::string& path);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }

  // Exactly n bytes at `offset`; an error if the file has fewer. Thread-safe.
  Status Read(int64_t offset, int64_t n, std::byte* out) const;

 private:
  File(std::string path, int fd, int64_t size);

  std::string path_;
  int fd_ = -1;
  int64_t size_ = 0;
};

}  // namespace trine
