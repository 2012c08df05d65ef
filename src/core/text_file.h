// A whole file as text.
#pragma once

#include <cstdint>
#include <string>

#include "src/core/result.h"

namespace trine {

// Blocks on the disk. A file of more than `most` bytes is an error with both numbers.
Result<std::string> ReadTextFile(const std::string& path, int64_t most);

}  // namespace trine
