// The data plane: collectives on tensors. It knows pointers, counts and element types, never what
// they mean. Every rank issues the same calls in the same order; buffers belong to the caller.
//
// Backends: self (one rank), shm (CPU ranks of one host, as processes or as threads), mpi (CPU
// ranks anywhere). On CPU a call returns when its result is in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/control.h"
#include "comm/world.h"

namespace trine {

enum class Element { kByte, kFloat32, kInt64 };

constexpr int64_t ElementBytes(Element type) {
  return type == Element::kByte ? 1 : type == Element::kFloat32 ? 4 : 8;
}

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual const World& world() const = 0;
  virtual std::string_view name() const = 0;  // "self", "shm", "mpi"

  // data [count]: replaced by the sum over ranks. kInt64 wraps modulo 2^64 and so is exact in any
  // order; kFloat32 adds in rank order, so every rank and every backend gets the same bits. kByte
  // is not summable (aborts).
  virtual void AllReduceSum(void* data, int64_t count, Element type) = 0;

  // mine [counts[rank]] of every rank, concatenated by rank into all [sum of counts]. Counts may
  // differ and be zero; every rank passes the same counts. `mine` may lie at its own place in
  // `all`.
  virtual void AllGather(const void* mine, void* all, std::span<const int64_t> counts,
                         Element type) = 0;

  // all [sum of counts] is summed over ranks as AllReduceSum does; this rank's part goes to
  // mine [counts[rank]]. `all` is left undefined. `mine` may lie inside `all`.
  virtual void ReduceScatterSum(void* all, void* mine, std::span<const int64_t> counts,
                                Element type) = 0;

  // Ends the whole job with this reason on stderr; never returns.
  [[noreturn]] virtual void Abort(std::string_view reason) = 0;
};

std::unique_ptr<Communicator> MakeSelfCommunicator();

// The MPI that this program runs with, such as "Open MPI v4.1.4".
std::string MpiLibrary();

// Memory that each rank of a job brings to what the ranks of a host share.
int64_t SharedBytesPerRank(int ranks);

// One rank of an in-process job: ranks as threads, for tests.
struct ThreadRank {
  std::unique_ptr<ControlChannel> control;
  std::unique_ptr<Communicator> comm;
};

// `size` ranks over one shared region. Element r is to be used by one thread only; the region lives
// until the last of them is destroyed.
std::vector<ThreadRank> MakeThreadRanks(int size);

}  // namespace trine
