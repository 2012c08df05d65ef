// An all-gather of host bytes whose parts carry a checksum with the sender's seal (seals.h): one
// that is lost, old or changed ends the job and names its rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "comm/seals.h"

namespace trine {

class SealedGather {
 public:
  // Both must outlive this.
  SealedGather(Communicator& comm, Seals& seals) : comm_(comm), seals_(seals) {}

  // Collective; blocks. mine [bytes[rank]] of every rank, concatenated by rank into `all`. Memory
  // grows to the largest call and is kept.
  void Run(const void* mine, void* all, std::span<const int64_t> bytes);

 private:
  Communicator& comm_;
  Seals& seals_;
  std::vector<int64_t> sealed_bytes_;
  std::vector<std::byte> mine_, all_;
};

}  // namespace trine
