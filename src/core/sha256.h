// The SHA-256 of a file, by OpenSSL.
#pragma once

#include <string>

#include "src/core/file.h"
#include "src/core/result.h"

namespace trine {

// Lower-case hex; reads the whole file.
Result<std::string> Sha256(const File& file);

}  // namespace trine
