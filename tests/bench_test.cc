// What the benchmark puts before backend and communicator: it times, and changes nothing.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <mutex>
#include <numeric>

#include "kernels/cpu/panels.h"
#include "src/engine/timed_backend.h"
#include "src/engine/timed_communicator.h"
#include "tests/job.h"
#include "tests/kernels.h"

namespace trine {
namespace {

TEST(SplitCollectives, WaitingEndsWhenTheLastEnters) {
  const CollectiveTimes times = SplitCollectives({{{0, 100}, {200, 210}}, {{30, 90}, {200, 230}}});
  EXPECT_EQ(times.wait, (30 + 0) / 2.0);
  EXPECT_EQ(times.comm, (70 + 60 + 10 + 30) / 2.0);
}

TEST(SplitCollectives, RankThatLeavesBeforeTheLastEnters_HasOnlyWaited) {
  const CollectiveTimes times = SplitCollectives({{{0, 10}}, {{50, 60}}});
  EXPECT_EQ(times.wait, 5);
  EXPECT_EQ(times.comm, 5);
}

TEST(SplitCollectives, NoCollective_NoTime) {
  const CollectiveTimes times = SplitCollectives({{}, {}});
  EXPECT_EQ(times.wait + times.comm, 0);
}

TEST(TimedCommunicator, SameResult_OneNoteEach) {
  std::vector<ThreadRank> job = MakeThreadRanks(2);
  std::vector<std::vector<CollectiveNote>> notes(2);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      TimedCommunicator comm(*job[rank].comm);
      EXPECT_EQ(comm.name(), job[rank].comm->name());
      int64_t sum[] = {int64_t(rank) + 1}, part = 0;
      comm.AllReduceSum(sum, 1, Element::kInt64);
      EXPECT_EQ(sum[0], 3);
      int64_t all[] = {0, 0};
      const int64_t counts[] = {1, 1};
      comm.AllGather(&sum[0], all, counts, Element::kInt64);
      EXPECT_EQ(all[0] + all[1], 6);
      comm.ReduceScatterSum(all, &part, counts, Element::kInt64);
      EXPECT_EQ(part, 6);
      notes[rank] = comm.notes();
      comm.Clear(8);
      EXPECT_TRUE(comm.notes().empty());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& rank : notes) {
    ASSERT_EQ(rank.size(), 3u);
    int64_t before = 0;
    for (const CollectiveNote& note : rank) {
      EXPECT_LE(before, note.entry);
      EXPECT_LE(note.entry, note.exit);
      before = note.exit;
    }
  }
  // Nobody leaves an all-reduce before the last has entered.
  EXPECT_LE(notes[0][0].entry, notes[1][0].exit);
  EXPECT_LE(notes[1][0].entry, notes[0][0].exit);
}

// A page that may not be read ends the process wherever it lies; 1025 lines of 64 bytes are 16
// pages and a line.
TEST(ReadThrough, EveryPageIsRead) {
  const auto backend = MakeBackend("generic");
  const WeightDesc desc{DType::kF32, /*rows=*/16, {{0, 1025}}};
  const LoadedWeight loaded = backend->LoadWeight(desc, [](int64_t, int64_t n, std::byte* out) {
    std::memset(out, 0, static_cast<size_t>(n * 1025 * 4));
    return true;
  });
  ASSERT_EQ(loaded.weight->bytes(), 1025 * 64);
  const uint8_t* data = static_cast<const cpu::CpuWeight&>(*loaded.weight).panels().data;
  backend->ReadThrough(*loaded.weight);
  for (const int64_t page : {0, 1, 7, 8, 15, 16}) {
    void* memory = const_cast<uint8_t*>(data) + page * 4096;
    ASSERT_EQ(mprotect(memory, 4096, PROT_NONE), 0);
    EXPECT_DEATH(backend->ReadThrough(*loaded.weight), "") << page;
    ASSERT_EQ(mprotect(memory, 4096, PROT_READ | PROT_WRITE), 0);
  }
}

constexpr size_t Index(OpClass op) {
  return static_cast<size_t>(op);
}

// The operations that each architecture has are timed, others are not, and all of them take no
// longer than the job; the logits are those of a job without a clock.
TEST(TimedBackend, SameLogits_TimesOfWhatTheModelDoes) {
  for (const char* name : {"qwen3_f32", "qwen35_a_rot_pq2_0"}) {
    const bool hybrid = std::string(name) != "qwen3_f32";
    SessionOptions options;
    options.model = std::string(TRINE_TEST_DATA) + "/tiny/" + name + ".gguf";
    options.context = 64;
    options.logit_rows = 3;
    const std::vector<Tokens> tokens = {{1, 2, 3, 4, 5, 6, 7}};
    std::vector<Logits> plain, timed;
    ASSERT_TRUE(
        RunJob(2, options, [&](Session& session) { plain = Evaluate(session, tokens, 3); }).ok());
    std::mutex mutex;
    std::vector<TimedBackend*> backends;
    options.decorate = [&](std::unique_ptr<Backend> inner) {
      auto backend = std::make_unique<TimedBackend>(std::move(inner));
      const std::lock_guard lock(mutex);
      backends.push_back(backend.get());
      return backend;
    };
    const auto check = [&](Session& session) {
      const auto start = std::chrono::steady_clock::now();
      timed = Evaluate(session, tokens, 3);
      const std::chrono::nanoseconds passed = std::chrono::steady_clock::now() - start;
      auto& mine = const_cast<TimedBackend&>(static_cast<const TimedBackend&>(session.backend()));
      const OpTimes times = mine.times();
      for (const OpClass op : {OpClass::kLinear, OpClass::kAttention, OpClass::kNorm,
                               OpClass::kRope, OpClass::kCandidates, OpClass::kOther}) {
        EXPECT_GT(times[Index(op)], 0) << name << " " << kOpClassNames[Index(op)];
      }
      EXPECT_EQ(times[Index(OpClass::kDelta)] > 0, hybrid);
      EXPECT_EQ(times[Index(OpClass::kRotation)] > 0, hybrid);
      EXPECT_LE(std::accumulate(times.begin(), times.end(), int64_t{0}), passed.count());
      mine.ReadWeights();
      EXPECT_EQ(mine.times(), times);
      mine.Clear();
      EXPECT_EQ(mine.times(), OpTimes{});
    };
    ASSERT_TRUE(RunJob(2, options, check).ok());
    EXPECT_EQ(backends.size(), 2u);
    EXPECT_EQ(timed, plain);
  }
}

}  // namespace
}  // namespace trine
