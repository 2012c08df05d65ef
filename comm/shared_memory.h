// Whether the ranks of one host can share memory: looked at before it is tried, as a shared window
// that cannot be made ends the job with less of a reason, or hangs.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "comm/control.h"

namespace trine {

// A rank's view of the folder where MPI's shared windows lie.
struct SharedMemory {
  uint64_t file_system = 0;  // its number; 0: unknown
  int64_t free = 0;          // bytes
};

// "/dev/shm", or what OMPI_MCA_osc_sm_backing_directory says, which Open MPI goes by.
std::string SharedMemoryFolder();

SharedMemory LookAtSharedMemory(const std::string& folder);

// Why the ranks, all on one host, cannot share `bytes` of memory there, in one line with the
// remedy. Empty: nothing speaks against it.
std::string WhyNotShared(std::span<const SharedMemory> ranks, const std::string& folder,
                         int64_t bytes);

// Collective: the above, of the ranks of this job; the same text on all.
std::string WhyNotShared(ControlChannel& control, const std::string& folder, int64_t bytes);

}  // namespace trine
