// Where this process is, for its watchdog and for whoever asks why a job ended: stamped by the code
// that moves, read by another thread. One a process, as a process is what ends; ranks that are
// threads of one process, in tests, stamp over each other and nobody reads.
//
// Stamps are relaxed stores and a look at the clock: they cost tens of nanoseconds, no lock, no
// call into MPI or a device.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

namespace trine {

enum class Phase : int32_t { kStartUp, kFabric, kLoad, kPrefill, kDecode, kIdle, kShutdown };
constexpr int kPhases = 7;

// "start-up", "fabric", "load", "prefill", "decode", "idle", "shutdown".
const char* PhaseName(Phase phase);

// What a process waits for.
inline constexpr int32_t kNobody = -1, kSomeRank = -2;  // or a rank

// A consistent enough copy of the stamps.
struct Standing {
  Phase phase = Phase::kStartUp;
  int64_t step = 0;
  int32_t waits_for = kNobody;
  std::chrono::milliseconds still{0};  // since anything moved
};

// "decode, step 7"
std::string PlaceText(Phase phase, int64_t step);

class Progress {
 public:
  // A phase begins, or another step of it. Faults that are asked for happen here (fault.h).
  void Enter(Phase phase, int64_t step = 0);
  // The phase goes on: something was done that shows that it is alive.
  void Move() { moved_.store(Now(), std::memory_order_relaxed); }

  // Called while waiting: it is alive where nothing else needs to happen.
  void Poll() {
    if (phase_.load(std::memory_order_relaxed) == Phase::kIdle) Move();
  }

  // What follows may take until that rank has come to the same place. Called once a wait is long.
  void WaitFor(int32_t rank) { waits_for_.store(rank, std::memory_order_relaxed); }

  Standing standing() const;

 private:
  static int64_t Now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

  std::atomic<Phase> phase_{Phase::kStartUp};
  std::atomic<int64_t> step_{0}, moved_{Now()};
  std::atomic<int32_t> waits_for_{kNobody};
};

Progress& OwnProgress();  // of this process

}  // namespace trine
