// The SHA-256 of a file, by OpenSSL; and the lists of them that sha256sum writes.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "src/core/file.h"
#include "src/core/result.h"

namespace trine {

// Lower-case hex; reads the whole file. progress (may be empty) gets the bytes read so far.
Result<std::string> Sha256(const File& file, const std::function<void(int64_t done)>& progress);

struct Sha256List {
  std::map<std::string, std::string> by_name;  // lower-case hex; names without their folders
  std::string alone;                           // of a file that is one digest and nothing else
};

// Lines "HEX  NAME" or "HEX *NAME", or one "HEX". Errors name the file and the line.
Result<Sha256List> ReadSha256List(const std::string& path);

}  // namespace trine
