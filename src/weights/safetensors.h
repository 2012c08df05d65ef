// Safetensors: the headers of a checkpoint's files, one or several with an index. It knows no
// tensor's meaning. Source: the format's description in huggingface/safetensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/file.h"
#include "src/core/result.h"

namespace trine {

// A number format as the container spells it, e.g. "BF16".
struct SafetensorsTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;  // the last is contiguous; none: one value
  int file = 0;                // index into the files
  int64_t offset = 0;          // of its first byte in that file
  int64_t bytes = 0;
};

struct SafetensorsFiles {
  std::vector<File> files;
  std::vector<SafetensorsTensor> tensors;  // sorted by name
};

// `path`: a .safetensors file, or a .safetensors.index.json, whose files lie beside it. Nothing is
// allocated that a file cannot hold: headers have at most 100 MB. Errors name the file, the tensor
// or field, and both values: a tensor beyond the end, overlapping another, given twice, of a size
// that its shape and type deny, or listed in the index and absent.
Result<SafetensorsFiles> ReadSafetensors(const std::string& path);

// Bytes of a value of that type; 0 for a name that the format does not know.
int64_t SafetensorsValueBytes(std::string_view dtype);

}  // namespace trine
