// Convert: a model from one container or type to another. The plan is conversion.h; here are the
// files.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "src/convert/conversion.h"

namespace trine {

struct ConvertOptions {
  std::string input;                              // a GGUF file, or a folder of Hugging Face's
  std::string output;                             // NAME.gguf, or a folder to make
  std::optional<DType> type;                      // of the matrices; see PlanConversion
  int64_t shard_bytes = int64_t{5} * 1000000000;  // at most, of a .safetensors file
  int threads = 1;
};

// Writes the output and tells what was planned. Memory is bounded, about 50 MB and the
// header, which is some times its size in the file; free space is checked first. A .gguf file is
// written as NAME.gguf.partial, a folder as FOLDER.partial, and gets its name when it is complete
// and on the disk. What a killed run leaves of a folder is gone on with, a whole shard at a time,
// if source and options are the same; it is replaced otherwise. A file that is there is replaced, a
// folder is not; nor is a FOLDER.partial that no conversion began. What would overwrite a file of
// the source is an error. progress (may be empty) gets bytes of the source done and in all.
Result<Conversion> Convert(const ConvertOptions& options,
                           const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace trine
