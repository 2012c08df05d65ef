// Private to comm/: how a rank waits for another one. Short waits cost no system call, ranks
// without a core of their own let the others run, and long waits cost next to no CPU time.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "comm/progress.h"

namespace trine {

class Waiter {
 public:
  // waits_for: a rank, or kSomeRank; told to `progress` once the wait is long. The longest sleep is
  // also the most by which a wait may overshoot; ten times that once it has lasted a second, when
  // nobody is in a hurry any more.
  Waiter(std::chrono::microseconds longest_sleep, int32_t waits_for)
      : waits_for_(waits_for), longest_sleep_(longest_sleep) {}
  ~Waiter() {
    if (spins_ > kSpins) OwnProgress().WaitFor(kNobody);
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // One step of waiting; call it between two looks at the condition.
  void Pause() {
    if (spins_ < kSpins) {
      ++spins_;
      RelaxCpu();
      return;
    }
    const auto now = std::chrono::steady_clock::now();
    if (spins_ == kSpins) {
      ++spins_;
      OwnProgress().WaitFor(waits_for_);
      yield_until_ = now + kYieldFor;
    }
    if (now < yield_until_) {
      sched_yield();
      return;
    }
    const bool idle = now > yield_until_ + kIdleAfter;
    sleep_ = std::min(2 * sleep_, idle ? 10 * longest_sleep_ : longest_sleep_);
    OwnProgress().Poll();
    std::this_thread::sleep_for(sleep_);
  }

 private:
  static constexpr int kSpins = 100;  // about 4 us on x86
  static constexpr std::chrono::milliseconds kYieldFor{2};
  static constexpr std::chrono::seconds kIdleAfter{1};

  static void RelaxCpu() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  int spins_ = 0;
  std::chrono::steady_clock::time_point yield_until_;
  std::chrono::microseconds sleep_{25};
  const int32_t waits_for_;
  const std::chrono::microseconds longest_sleep_;
};

}  // namespace trine
