#include "comm/shared_memory.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace trine {
namespace {

std::string Megabytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

}  // namespace

std::string SharedMemoryFolder() {
  const char* folder = std::getenv("OMPI_MCA_osc_sm_backing_directory");
  return folder == nullptr ? "/dev/shm" : folder;
}

SharedMemory LookAtSharedMemory(const std::string& folder) {
  struct stat file {};
  struct statvfs system {};
  if (stat(folder.c_str(), &file) != 0 || statvfs(folder.c_str(), &system) != 0) return {};
  return {file.st_dev, static_cast<int64_t>(system.f_bavail * system.f_frsize)};
}

std::string WhyNotShared(std::span<const SharedMemory> ranks, const std::string& folder,
                         int64_t bytes) {
  int64_t least = INT64_MAX;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].file_system == 0) return "";  // MPI will find another place, or say why not
    if (ranks[rank].file_system != ranks[0].file_system) {
      return "rank " + std::to_string(rank) + " is on the host of rank 0 but has another " +
             folder + ", as containers have; start all ranks in one, or each with --ipc=host";
    }
    least = std::min(least, ranks[rank].free);
  }
  if (least >= bytes) return "";
  return folder + " has " + Megabytes(least) + " free and " + std::to_string(ranks.size()) +
         " ranks share " + Megabytes(bytes) + " there; start the container with --shm-size=1g or " +
         "--ipc=host";
}

std::string WhyNotShared(ControlChannel& control, const std::string& folder, int64_t bytes) {
  const SharedMemory mine = LookAtSharedMemory(folder);
  Bytes message(sizeof mine);
  std::memcpy(message.data(), &mine, sizeof mine);
  std::vector<SharedMemory> ranks;
  for (const Bytes& view : control.AllGather(message)) {
    std::memcpy(&ranks.emplace_back(), view.data(), sizeof mine);
  }
  return WhyNotShared(ranks, folder, bytes);
}

}  // namespace trine
