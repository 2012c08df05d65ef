#include "src/core/memory.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <sstream>

namespace trine {
namespace {

constexpr int64_t kUnlimited = int64_t{1} << 62;

// Of MemTotal, which is in units of 1024 bytes.
int64_t TotalMemory(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::string name;
  int64_t kibibytes = 0;
  while (file >> name) {
    if (name == "MemTotal:" && file >> kibibytes) return kibibytes * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return kUnlimited;
}

// The number in a file; no file, "max" and numbers beyond int64_t are no limit.
int64_t LimitIn(const std::string& path) {
  std::ifstream file(path);
  int64_t bytes = 0;
  return file >> bytes ? bytes : kUnlimited;
}

// The least limit of a group and of those above it. A container may not see its own path: then the
// top folder is its own.
int64_t LeastLimit(const std::string& top, std::string group, const std::string& file) {
  int64_t least = kUnlimited;
  for (;;) {
    while (group.ends_with('/')) group.pop_back();
    least = std::min(least, LimitIn(top + group + "/" + file));
    if (group.empty()) return least;
    group.erase(std::min(group.rfind('/'), group.size()));
  }
}

}  // namespace

int64_t HostMemory(const std::string& root) {
  int64_t bytes = TotalMemory(root);
  std::ifstream groups(root + "/proc/self/cgroup");
  // ID:CONTROLLERS:/PATH; version 2 has no controllers.
  for (std::string line; std::getline(groups, line);) {
    std::istringstream fields(line);
    std::string id, controllers, group;
    std::getline(fields, id, ':');
    std::getline(fields, controllers, ':');
    std::getline(fields, group);
    const std::string top = root + "/sys/fs/cgroup";
    if (controllers.empty()) {
      bytes = std::min(bytes, LeastLimit(top, group, "memory.max"));
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      bytes = std::min(bytes, LeastLimit(top + "/memory", group, "memory.limit_in_bytes"));
    }
  }
  return bytes;
}

std::string MemoryText(int64_t bytes) {
  char text[32];
  const auto value = static_cast<double>(bytes);
  if (bytes >= 1'000'000'000) {
    std::snprintf(text, sizeof text, "%.2f GB", value / 1e9);
  } else if (bytes >= 1'000'000) {
    std::snprintf(text, sizeof text, "%.1f MB", value / 1e6);
  } else if (bytes >= 1'000) {
    std::snprintf(text, sizeof text, "%.1f KB", value / 1e3);
  } else {
    std::snprintf(text, sizeof text, "%lld bytes", static_cast<long long>(bytes));
  }
  return text;
}

}  // namespace trine
