// OutputFile: written as PATH.partial, renamed when complete. A program that dies in between leaves
// the old file, or none, and a .partial that the next one overwrites.
#pragma once

#include <cstddef>
#include <cstdio>
#include <functional>
#include <span>
#include <string>

#include "src/core/result.h"

namespace trine {

// Appends to a file. The bytes are the caller's again when it returns. An error (the disk is full)
// must be passed on at once.
using ByteSink = std::function<Status(std::span<const std::byte>)>;

class OutputFile {
 public:
  // Errors name the path: it cannot be created, is no regular file, or another process is writing
  // it.
  static Result<OutputFile> Create(const std::string& path);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();  // removes what was not committed

  Status Write(std::span<const std::byte> bytes);

  // Makes the data durable and gives the file its name.
  Status Commit();

 private:
  OutputFile(std::string path, std::string temporary, std::FILE* file);
  Status Failure(const char* what) const;

  std::string path_;
  std::string temporary_;
  std::FILE* file_ = nullptr;
};

}  // namespace trine
