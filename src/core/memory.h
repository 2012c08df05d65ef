// How much memory this host has for us, and amounts of it in words.
#pragma once

#include <cstdint>
#include <string>

namespace trine {

// Bytes: all of this host's memory, or the limit of a control group (v1 or v2) that this process is
// in, whichever is least. 2^62 where neither can be read. Reads files below `root`:
// proc/meminfo, proc/self/cgroup and those in sys/fs/cgroup; another than "" is for tests.
int64_t HostMemory(const std::string& root = "");

// "1.50 GB", "20.0 MB", "3.1 KB", "12 bytes"; powers of ten.
std::string MemoryText(int64_t bytes);

}  // namespace trine
