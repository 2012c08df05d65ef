// OutputFile: written under a temporary name beside its own, renamed when complete. A program that
// dies in between leaves the old file, or none.
#pragma once

#include <cstdio>
#include <span>
#include <string>

#include "src/core/result.h"

namespace trine {

class OutputFile {
 public:
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
