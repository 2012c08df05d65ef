// The control plane: small host messages between ranks. It blocks the calling thread and is used by
// one thread per rank (the engine thread). Tensors go through communicator.h instead.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "comm/status.h"
#include "comm/world.h"

namespace trine {

using Bytes = std::vector<std::byte>;

class ControlChannel {
 public:
  virtual ~ControlChannel() = default;

  virtual const World& world() const = 0;

  // Collective. The root's message replaces everyone's. A rank that waits polls: it spins for 2 ms,
  // then sleeps in steps of at most 500 us, and of 5 ms once a second has passed, so that an idle
  // worker costs next to nothing.
  virtual void Broadcast(Bytes& message, int root) = 0;

  // Collective. Everyone's message, by rank. Messages may differ in length.
  virtual std::vector<Bytes> AllGather(const Bytes& mine) = 0;

  // Collective. Returns when every rank has called it.
  virtual void Barrier() = 0;

  // Collective. OK if every rank's status is OK; otherwise the first failing rank's error, on every
  // rank. "rank r: " stands before it where it is not every rank's and not rank 0's, which speaks
  // for the user.
  Status Agree(const Status& mine);
};

// A job of one rank: every call returns at once.
std::unique_ptr<ControlChannel> MakeSelfControl();

}  // namespace trine
