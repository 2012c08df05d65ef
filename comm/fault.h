// Faults on request, for tests of everything that must end well when a rank does not:
//
//   TRINE_FAULT=rank=1,kind=exit[,phase=load][,step=7][,collective=3]
//
// happens on that rank when it enters the phase (any, unless named) at the step (any); what
// falsifies waits for the collective behind that, the first unless another is named. Without the
// variable nothing is done but to look at one flag.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/progress.h"

namespace trine {

class Fault {
 public:
  enum class Kind {
    kNone,
    kExit,   // status 3, without a word
    kAbort,  // SIGABRT
    kSegv,   // SIGSEGV
    kStop,   // SIGSTOP, which only a parent or a watchdog of another rank can see
    kSleep,  // for an hour, in the thread that computes
    kThrow,  // std::runtime_error
    kSlow,   // 20 ms at every stamp from then on; nothing must come of it
    // In the rank's contribution to a collective:
    kCorrupt,  // a bit flipped
    kZero,     // nothing but zeros
    kStale,    // what it sent to an earlier one of the same size
  };

  // Of TRINE_FAULT, for the rank that this process is. What is malformed is refused: returns a
  // warning, and nothing will happen.
  std::string Arm(int rank);

  void At(Phase phase, int64_t step) {
    if (kind_ != Kind::kNone) Meet(phase, step);
  }

  // A communicator that falsifies, if this process is asked to; else `inner`.
  std::unique_ptr<Communicator> Falsify(std::unique_ptr<Communicator> inner);

 private:
  friend class FalseCommunicator;
  void Meet(Phase phase, int64_t step);

  Kind kind_ = Kind::kNone;
  int phase_ = -1;     // -1: any
  int64_t step_ = -1;  // -1: any
  int64_t collective_ = 1;
  bool met_ = false;
};

Fault& OwnFault();  // of this process

}  // namespace trine
