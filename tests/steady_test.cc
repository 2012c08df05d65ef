// A running engine takes no memory: decode steps do not allocate, and what a thousand requests
// leave behind is nothing. Counts every allocation of this process, of all ranks and their threads.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <random>

#include "tests/job.h"

namespace {
std::atomic<int64_t> allocations{0}, live_bytes{0};

void* Count(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  allocations.fetch_add(1, std::memory_order_relaxed);
  live_bytes.fetch_add(static_cast<int64_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
  return memory;
}

void Release(void* memory) {
  live_bytes.fetch_sub(static_cast<int64_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
  std::free(memory);
}
}  // namespace

void* operator new(size_t size) {
  return Count(std::malloc(size));
}
void* operator new(size_t size, std::align_val_t align) {
  const auto unit = static_cast<size_t>(align);
  return Count(std::aligned_alloc(unit, (size + unit - 1) / unit * unit));
}
void operator delete(void* memory) noexcept {
  Release(memory);
}
void operator delete(void* memory, size_t) noexcept {
  Release(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  Release(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  Release(memory);
}

namespace trine {
namespace {

SessionOptions Options(const std::string& name, int threads) {
  SessionOptions options;
  options.model = DataPath("tiny/" + name + ".gguf");
  options.sequences = 4;
  options.step_tokens = 64;
  options.threads = threads;
  options.context = 256;
  options.snapshots = 4;
  return options;
}

Request RandomRequest(std::mt19937& random, uint64_t generate) {
  Request request;
  request.prompt.resize(20 + random() % 60);
  for (int32_t& token : request.prompt) token = static_cast<int32_t>(3 + random() % 250);
  request.max_tokens = static_cast<int32_t>(generate);
  request.sampling = {.temperature = 1, .repeat_penalty = 1.1f, .seed = random()};
  return request;
}

constexpr const char* kModels[] = {"qwen3_q4_1", "qwen35_a_rot_ptq1_0"};

// Four sequences: 64 steps to warm up, as many as penalties look back on, then 80, in which every
// sequence gets new pages, tokens are cached, and snapshots are taken and replaced.
TEST(Steady, DecodeSteps_DoNotAllocate) {
  for (const char* name : kModels) {
    for (const int ranks : {1, 3}) {
      const Status status = RunJob(ranks, Options(name, ranks == 1 ? 2 : 1), [&](Session& session) {
        std::mt19937 random(1);
        Scheduler scheduler(session.scheduler_limits());
        for (int i = 0; i < 4; ++i) {
          ASSERT_TRUE(scheduler.Submit(RandomRequest(random, 150)).ok());
        }
        for (int i = 0; i < 64; ++i) session.Step(scheduler);
        const int64_t before = allocations;
        for (int i = 0; i < 80; ++i) ASSERT_EQ(session.Step(scheduler).size(), 4u);
        EXPECT_EQ(allocations - before, 0) << name << " on " << ranks;
      });
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }
}

// A thousand requests that come at random and of which a part is cancelled, on a cache that is too
// small for all: after the first 200 neither the buffers of the backend nor the heap grow.
TEST(Steady, ThousandRequests_LeaveNothing) {
  for (const char* name : kModels) {
    const Status status = RunJob(2, Options(name, 1), [&](Session& session) {
      std::mt19937 random(2);
      SchedulerLimits limits = session.scheduler_limits();
      limits.pages = 8;
      Scheduler scheduler(limits);
      int64_t submitted = 0, ended = 0, cancelled = 0, heap = 0;
      const auto count = [&](std::span<const TokenEvent> events) {
        for (const TokenEvent& event : events) {
          ended += event.finish != FinishReason::kNone ? 1 : 0;
          cancelled += event.finish == FinishReason::kCancelled ? 1 : 0;
        }
      };
      const int64_t arena = session.backend().allocated();
      while (submitted < 1000 || !scheduler.idle()) {
        if (submitted < 1000 && random() % 3 == 0) {
          const Result<int64_t> id = scheduler.Submit(RandomRequest(random, 1 + random() % 20));
          ASSERT_TRUE(id.ok());
          submitted = *id + 1;
        }
        if (submitted > 0 && random() % 10 == 0)
          scheduler.Cancel(submitted - 1 - static_cast<int64_t>(random() % 5));
        if (scheduler.idle()) continue;
        count(session.Step(scheduler));
        if (ended < 200) heap = live_bytes;
      }
      std::vector<TokenEvent> events;
      scheduler.TakeEvents(events);
      count(events);
      EXPECT_EQ(ended, 1000);
      EXPECT_GT(cancelled, 100);
      EXPECT_GT(scheduler.preemptions(), 20);
      EXPECT_EQ(session.backend().allocated(), arena);
      EXPECT_LT(live_bytes, heap + 65536) << name;
    });
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

}  // namespace
}  // namespace trine
