// A pool of threads for data-parallel loops: the caller is one of them. Waiting threads spin for a
// short while (the next operation of a step is microseconds away), then sleep on a futex.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace trine::cpu {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // throws std::system_error if they cannot be had
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end) on disjoint ranges that cover [0, n), one a thread, each at least
  // `grain` long if possible; returns when all are done. One caller at a time; body must not throw.
  template <typename Body>
  void ForRange(int64_t n, int64_t grain, const Body& body) {
    const int64_t parts = std::min<int64_t>(threads(), n / grain);
    if (parts <= 1) {
      if (n > 0) body(int64_t{0}, n);
      return;
    }
    Run(
        static_cast<int>(parts),
        [](const void* context, int64_t total, int64_t part, int64_t of) {
          const int64_t begin = total * part / of, end = total * (part + 1) / of;
          (*static_cast<const Body*>(context))(begin, end);
        },
        &body, n);
  }

 private:
  using Invoke = void (*)(const void* body, int64_t n, int64_t part, int64_t parts);

  void Run(int parts, Invoke invoke, const void* body, int64_t n);
  void Work(int index);
  void Stop();

  std::vector<std::thread> workers_;
  alignas(64) std::atomic<uint32_t> epoch_{0};   // one more for every loop, and for the end
  alignas(64) std::atomic<int32_t> running_{0};  // workers still in the current loop
  bool stop_ = false;
  int parts_ = 0;
  Invoke invoke_ = nullptr;
  const void* body_ = nullptr;
  int64_t n_ = 0;
};

}  // namespace trine::cpu
