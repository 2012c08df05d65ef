#include "src/core/file_lock.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>

namespace trine {

Lock TryLock(int fd, const std::string& path) {
  if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return Lock::kBusy;
  struct stat opened = {}, named = {};
  const bool same = fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
                    opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
  return same ? Lock::kTaken : Lock::kMoved;
}

}  // namespace trine
