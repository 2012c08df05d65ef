#include "kernels/cpu/thread_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trine::cpu {
namespace {

// About 50 us: longer than the gap between two operations of a step, shorter than anything idle.
constexpr int kSpins = 2000;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

template <typename T>
void WaitWhile(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { Work(i); });
  } catch (...) {
    Stop();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  Stop();
}

void ThreadPool::Stop() {
  stop_ = true;
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(int parts, Invoke invoke, const void* body, int64_t n) {
  parts_ = parts;
  invoke_ = invoke;
  body_ = body;
  n_ = n;
  running_.store(static_cast<int32_t>(workers_.size()), std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  invoke(body, n, 0, parts);
  for (int32_t left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire)) {
    WaitWhile(running_, left);
  }
}

void ThreadPool::Work(int index) {
  for (uint32_t seen = 0;; ++seen) {
    WaitWhile(epoch_, seen);
    if (stop_) return;
    if (index < parts_) invoke_(body_, n_, index, parts_);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_all();
  }
}

}  // namespace trine::cpu
