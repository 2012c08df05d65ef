// Private to comm/: the shared region under the shm communicator, and the communicator over it.
// shm.cc holds the protocol; threads.cc makes a region on the heap, mpi.cc one in an MPI window.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "comm/communicator.h"
#include "comm/world.h"

namespace trine {

// Two slots of 1 MiB make 2 MiB per rank: a container's /dev/shm of 64 MiB holds far more ranks
// than its host has cores for.
inline constexpr int64_t kSlotBytes = int64_t{1} << 20;

// Two lines of 64 bytes, since x86 prefetches them in pairs; one line on other machines.
inline constexpr size_t kLineBytes = 128;

// What one rank shows the others. Only its owner writes to it.
struct ShmArea {
  alignas(kLineBytes) std::atomic<uint64_t> step{0};  // the last step whose slot is filled
  alignas(kLineBytes) std::byte slots[2][kSlotBytes];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);  // a lock would not be shared

// One rank's hold on the areas of all ranks.
class ShmRegion {
 public:
  virtual ~ShmRegion() = default;
  virtual ShmArea& area(int rank) const = 0;

  // Ends the job; the reason has been printed.
  [[noreturn]] virtual void EndJob() = 0;
};

std::unique_ptr<Communicator> MakeShmCommunicator(const World& world,
                                                  std::unique_ptr<ShmRegion> region);

}  // namespace trine
