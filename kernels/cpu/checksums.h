// The checksums of what ranks send each other (kPartialExtraWords, kSealFloats in backend.h), and
// the first that was wrong. All sums are modulo 2^64, so exact in any order.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "kernels/backend.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/half.h"

namespace trine::cpu {

inline int64_t Minus(int64_t seal, uint64_t sum) {
  return static_cast<int64_t>(static_cast<uint64_t>(seal) - sum);
}

inline uint64_t SumWords(const int64_t* words, int64_t n) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<uint64_t>(words[i]);
  return sum;
}

// Every value's bits times an odd number of its place: a changed bit changes the sum, and values
// that change places do.
inline uint64_t SumBits(ThreadPool& pool, const float* values, int64_t n) {
  constexpr int64_t kGrain =
      16384;  // values per thread: below, waking one costs more than it saves
  std::atomic<uint64_t> total{0};
  pool.ForRange(n, kGrain, [&](int64_t begin, int64_t end) {
    uint64_t sum = 0;
    for (int64_t i = begin; i < end; ++i) {
      sum += FloatToBits(values[i]) * (static_cast<uint64_t>(i) * 0x9E3779B97F4A7C16u + 1);
    }
    total.fetch_add(sum, std::memory_order_relaxed);
  });
  return total;
}

// From any thread.
class FirstBreach {
 public:
  void Expect(int64_t seal, uint64_t found) {
    if (found == static_cast<uint64_t>(seal)) return;
    const std::lock_guard lock(mutex_);
    if (!breach_.seen)
      breach_ = {true, seal, Minus(static_cast<int64_t>(found), static_cast<uint64_t>(seal))};
  }
  Breach get() const { return breach_; }  // while nothing runs

 private:
  std::mutex mutex_;
  Breach breach_;
};

}  // namespace trine::cpu
