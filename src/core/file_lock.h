// One process at a time for a file or folder that is made under a temporary name and then renamed.
#pragma once

#include <string>

namespace trine {

enum class Lock {
  kTaken,  // until `fd` is closed
  kBusy,   // another process has it
  kMoved,  // whoever had it gave the file its final name meanwhile: open `path` anew
};

// Locks what `fd` has open, which was found under `path`. Does not block. Where the file system has
// no locks, everybody gets one.
Lock TryLock(int fd, const std::string& path);

}  // namespace trine
