// The fabric check against paths that lie: it finds every kind of wrong data, names it, and all
// ranks come to the same report.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/fabric_check.h"
#include "comm/shared_memory.h"
#include "src/core/cores.h"

namespace trine {
namespace {

constexpr FabricScope kScope = {64 << 10, 4, 3};  // 1, 4, 16, 64 KB
constexpr int64_t kSizes[] = {1 << 10, 4 << 10, 16 << 10, 64 << 10};

// What a rank does to one collective: its contribution before it, or its result after it.
struct Call {
  FabricOp op;
  int64_t bytes;  // of the whole
  std::span<std::byte> data;
};
using Lie = std::function<void(const Call&)>;

class LyingCommunicator final : public Communicator {
 public:
  LyingCommunicator(Communicator& inner, Lie before, Lie after)
      : inner_(inner), before_(std::move(before)), after_(std::move(after)) {}

  const World& world() const override { return inner_.world(); }
  std::string_view name() const override { return inner_.name(); }

  void AllReduceSum(void* data, int64_t count, Element type) override {
    const FabricOp op =
        type == Element::kInt64 ? FabricOp::kAllReduceInt64 : FabricOp::kAllReduceFloat32;
    const Call call = {op, count * ElementBytes(type), Part(data, count, type)};
    before_(call);
    inner_.AllReduceSum(data, count, type);
    after_(call);
  }
  void AllGather(const void* mine, void* all, std::span<const int64_t> counts,
                 Element type) override {
    std::vector<std::byte> copy(static_cast<size_t>(Mine(counts)));
    if (!copy.empty()) std::memcpy(copy.data(), mine, copy.size());
    before_({FabricOp::kAllGather, Total(counts), copy});
    inner_.AllGather(copy.data(), all, counts, type);
    after_({FabricOp::kAllGather, Total(counts), Part(all, Total(counts), type)});
  }
  void ReduceScatterSum(void* all, void* mine, std::span<const int64_t> counts,
                        Element type) override {
    const int64_t bytes = Total(counts) * ElementBytes(type);
    before_({FabricOp::kReduceScatter, bytes, Part(all, Total(counts), type)});
    inner_.ReduceScatterSum(all, mine, counts, type);
    after_({FabricOp::kReduceScatter, bytes, Part(mine, Mine(counts), type)});
  }
  [[noreturn]] void Abort(std::string_view reason) override {
    inner_.Abort(reason);
    std::abort();
  }

 private:
  static std::span<std::byte> Part(void* data, int64_t count, Element type) {
    return {static_cast<std::byte*>(data), static_cast<size_t>(count * ElementBytes(type))};
  }
  static int64_t Total(std::span<const int64_t> counts) {
    int64_t total = 0;
    for (const int64_t count : counts) total += count;
    return total;
  }
  int64_t Mine(std::span<const int64_t> counts) const {
    return counts[static_cast<size_t>(world().rank)];
  }

  Communicator& inner_;
  const Lie before_, after_;
};

void Nothing(const Call&) {}

// The report of every rank, where one of them lies.
std::vector<FabricReport> Check(int size, int liar, const Lie& before, const Lie& after) {
  std::vector<FabricReport> reports(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (ThreadRank& rank : MakeThreadRanks(size)) {
    threads.emplace_back([&, own = std::move(rank)] {
      const int r = own.comm->world().rank;
      const bool lies = r == liar;
      LyingCommunicator comm(*own.comm, lies ? before : Nothing, lies ? after : Nothing);
      reports[static_cast<size_t>(r)] = CheckFabric(comm, *own.control, kScope);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const FabricReport& report : reports) {  // all ranks came to the same
    for (size_t i = 0; i < report.tests.size(); ++i) {
      EXPECT_EQ(report.tests[i].verdict, reports[0].tests[i].verdict);
      EXPECT_EQ(report.tests[i].reason, reports[0].tests[i].reason);
      EXPECT_EQ(report.tests[i].microseconds, reports[0].tests[i].microseconds);
    }
  }
  return reports;
}

// Nothing but the test of this operation and size is wrong. Its reason.
std::string OnlyWrong(const FabricReport& report, FabricOp op, int64_t bytes) {
  std::string reason;
  for (const FabricTest& test : report.tests) {
    const bool expected = test.op == op && test.bytes == bytes;
    EXPECT_EQ(test.verdict == FabricVerdict::kWrong, expected)
        << FabricOpName(test.op) << " of " << test.bytes << ": " << test.reason;
    if (expected) reason = test.reason;
  }
  EXPECT_EQ(report.worst().reason, reason);
  return reason;
}

// Bit 2 of the byte in the middle, at one operation and size, as often as it comes by.
Lie FlipAt(FabricOp op, int64_t bytes) {
  return [=](const Call& call) {
    if (call.op == op && call.bytes == bytes) call.data[call.data.size() / 2] ^= std::byte{4};
  };
}

void ForEachTest(const std::function<void(FabricOp, int64_t)>& body) {
  for (const int64_t bytes : kSizes) {
    for (int op = 0; op < kFabricOps; ++op) {
      SCOPED_TRACE(std::string(FabricOpName(static_cast<FabricOp>(op))) + " of " +
                   std::to_string(bytes));
      body(static_cast<FabricOp>(op), bytes);
    }
  }
}

TEST(FabricCheck, SoundPaths_AreNotWrong) {
  const FabricReport self = CheckFabric(*MakeSelfCommunicator(), *MakeSelfControl(), kScope);
  EXPECT_EQ(self.path, "self");
  for (const int size : {1, 2, 3, 5}) {
    const FabricReport report = Check(size, -1, Nothing, Nothing)[0];
    EXPECT_EQ(report.path, "shm");
    ASSERT_EQ(report.tests.size(), self.tests.size());
    for (size_t i = 0; i < report.tests.size(); ++i) {
      EXPECT_NE(report.tests[i].verdict, FabricVerdict::kWrong) << report.tests[i].reason;
      EXPECT_EQ(report.tests[i].op, static_cast<FabricOp>(i % kFabricOps));
      EXPECT_EQ(report.tests[i].bytes, kSizes[i / kFabricOps]);
      EXPECT_GT(report.tests[i].microseconds, 0);
    }
  }
}

TEST(FabricCheck, ResultWrongOnOneRank_AllRanksNameIt) {
  ForEachTest([](FabricOp op, int64_t bytes) {
    const std::vector<FabricReport> reports = Check(3, 2, Nothing, FlipAt(op, bytes));
    const std::string reason = OnlyWrong(reports[0], op, bytes);
    EXPECT_TRUE(reason.starts_with(std::string(FabricOpName(op)) + " of " + FabricSizeText(bytes) +
                                   " gives wrong data: element "))
        << reason;
    EXPECT_TRUE(reason.ends_with(" on rank 2")) << reason;
  });
}

TEST(FabricCheck, ContributionWrong_IsSeen) {
  ForEachTest([](FabricOp op, int64_t bytes) {
    const std::string reason = OnlyWrong(Check(2, 1, FlipAt(op, bytes), Nothing)[0], op, bytes);
    if (op != FabricOp::kReduceScatter) {
      EXPECT_TRUE(reason.ends_with(" on every rank")) << reason;
    }
  });
}

TEST(FabricCheck, WrongOnceInTheLastRound_IsSeen) {
  ForEachTest([](FabricOp op, int64_t bytes) {
    int round = 0;
    const Lie flip = FlipAt(op, bytes);
    OnlyWrong(Check(2, 0, Nothing,
                    [&](const Call& call) {
                      const bool here = call.op == op && call.bytes == bytes;
                      if (here && ++round == kScope.rounds) flip(call);
                    })[0],
              op, bytes);
  });
}

TEST(FabricCheck, EndsOfTheData_AreCompared) {
  ForEachTest([](FabricOp op, int64_t bytes) {
    for (const bool last : {false, true}) {
      const std::string reason = OnlyWrong(Check(2, 1, Nothing,
                                                 [&](const Call& call) {
                                                   if (call.op != op || call.bytes != bytes) return;
                                                   (last ? call.data.back() : call.data.front()) ^=
                                                       std::byte{1};
                                                 })[0],
                                           op, bytes);
      if (!last) {
        EXPECT_NE(reason.find(": element 0 is 0x"), std::string::npos) << reason;
      }
    }
  });
}

TEST(FabricCheck, StaleContribution_IsSeen) {
  ForEachTest([](FabricOp op, int64_t bytes) {
    std::vector<std::byte> before;
    OnlyWrong(Check(
                  2, 1,
                  [&](const Call& call) {
                    if (call.op != op || call.bytes != bytes) return;
                    std::vector<std::byte> truth(call.data.begin(), call.data.end());
                    // Parts of a gather are not of one size.
                    const size_t size = std::min(before.size(), truth.size());
                    std::copy_n(before.begin(), size, call.data.begin());
                    before = std::move(truth);
                  },
                  Nothing)[0],
              op, bytes);
  });
}

TEST(FabricCheck, ContributionThatIsLost_IsSeen) {
  ForEachTest([](FabricOp op, int64_t bytes) {
    OnlyWrong(Check(
                  2, 1,
                  [&](const Call& call) {
                    if (call.op != op || call.bytes != bytes) return;
                    std::ranges::fill(call.data, std::byte{0});
                  },
                  Nothing)[0],
              op, bytes);
  });
}

// Every rank's mantissa counts to its fourth last bit, and so does the order of three ranks.
TEST(FabricCheck, Float32_HasAllBitsAndTheOrderOfRanks) {
  const auto flip = [](const Call& call) {
    if (call.op == FabricOp::kAllReduceFloat32) call.data[0] ^= std::byte{16};
  };
  EXPECT_EQ(Check(8, 7, flip, Nothing)[0].worst().op, FabricOp::kAllReduceFloat32);

  std::vector<FabricReport> reports(3);
  std::vector<std::thread> threads;
  for (ThreadRank& rank : MakeThreadRanks(3)) {
    threads.emplace_back([&, own = std::move(rank)] {
      const int r = own.comm->world().rank;
      std::vector<float> mine;
      const Lie keep = [&](const Call& call) {
        const auto* values = reinterpret_cast<const float*>(call.data.data());
        mine.assign(values, values + call.data.size() / sizeof(float));
      };
      const Lie reorder = [&](const Call& call) {
        if (call.op != FabricOp::kAllReduceFloat32) return;
        const auto count = static_cast<int64_t>(mine.size());
        std::vector<float> all(3 * mine.size());
        const std::vector<int64_t> counts(3, count);
        own.comm->AllGather(mine.data(), all.data(), counts, Element::kFloat32);
        auto* sum = reinterpret_cast<float*>(call.data.data());
        for (size_t i = 0; i < mine.size(); ++i) {
          sum[i] = all[2 * mine.size() + i] + all[mine.size() + i] + all[i];
        }
      };
      LyingCommunicator comm(*own.comm, keep, reorder);
      reports[static_cast<size_t>(r)] = CheckFabric(comm, *own.control, kScope);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const FabricTest& test : reports[0].tests) {
    EXPECT_EQ(test.verdict == FabricVerdict::kWrong, test.op == FabricOp::kAllReduceFloat32);
  }
}

TEST(FabricCheck, SlowOnOneRank_IsSlowWithItsTime) {
  const auto wait = [](const Call& call) {
    if (call.op == FabricOp::kAllGather && call.bytes == 4 << 10) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
  };
  const FabricReport report = Check(2, 1, Nothing, wait)[0];
  bool found = false;
  for (const FabricTest& test : report.tests) {
    EXPECT_NE(test.verdict, FabricVerdict::kWrong);
    if (test.op != FabricOp::kAllGather || test.bytes != 4 << 10) continue;
    found = true;
    EXPECT_EQ(test.verdict, FabricVerdict::kSlow);
    EXPECT_GE(test.microseconds, 30'000);
    EXPECT_TRUE(test.reason.starts_with("all-gather of 4 KB takes ")) << test.reason;
    EXPECT_TRUE(test.reason.ends_with(" us at best, more than 1041")) << test.reason;
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(report.worst().verdict, FabricVerdict::kSlow);
}

TEST(FabricCheck, SlowOnce_IsNotSlow) {
  int calls = 0;
  const auto wait = [&](const Call& call) {
    if (call.op == FabricOp::kAllGather && call.bytes == 1 << 10 && ++calls < kScope.rounds) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
  };
  for (const FabricTest& test : Check(2, 1, Nothing, wait)[0].tests) {
    if (test.op != FabricOp::kAllGather || test.bytes != 1 << 10) continue;
    EXPECT_GE(test.microseconds, 300'000);  // the median
    // On a full machine it may be slow without this.
    const size_t at_best = test.reason.find(" takes ");
    if (at_best == std::string::npos) continue;
    EXPECT_GT(std::stod(test.reason.substr(at_best + 7)), 1010) << test.reason;
  }
}

TEST(FabricCheck, WrongIsWorseThanSlow) {
  FabricReport report{"shm", {}, 14.2};
  const auto add = [&](int64_t bytes, double us, FabricVerdict verdict, const char* reason) {
    report.tests.push_back({FabricOp::kAllReduceInt64, bytes, us, verdict, reason});
  };
  add(16 << 10, 12.4, FabricVerdict::kOk, "");
  add(1 << 20, 115.0, FabricVerdict::kOk, "");
  EXPECT_EQ(report.Line(), "shm ok in 14 ms, all-reduce of 16 KB in 12 us, 1 MB at 9.1 GB/s");
  add(2 << 20, 1, FabricVerdict::kSlow, "late");
  EXPECT_EQ(report.Line(),
            "shm slow in 14 ms, all-reduce of 16 KB in 12 us, 1 MB at 9.1 GB/s; late");
  add(4 << 20, 1, FabricVerdict::kWrong, "first");
  add(8 << 20, 1, FabricVerdict::kWrong, "second");
  add(16 << 20, 1, FabricVerdict::kSlow, "later");
  EXPECT_EQ(report.worst().reason, "first");
}

TEST(SharedMemory, WhatSpeaksAgainstIt_IsNamedWithItsRemedy) {
  const auto why = [](const std::vector<SharedMemory>& ranks, int64_t bytes) {
    return WhyNotShared(ranks, "/dev/shm", bytes);
  };
  EXPECT_EQ(why({{7, 100}, {7, 100}}, 100), "");
  EXPECT_EQ(why({{7, 5'000'000}, {7, 4'100'000}}, 4'200'000),
            "/dev/shm has 4.1 MB free and 2 ranks share 4.2 MB there; start the container with "
            "--shm-size=1g or --ipc=host");
  EXPECT_EQ(why({{7, 100}, {7, 100}, {8, 100}}, 100),
            "rank 2 is on the host of rank 0 but has another /dev/shm, as containers have; start "
            "all ranks in one, or each with --ipc=host");
  EXPECT_EQ(why({{0, 0}, {0, 0}}, 100), "");  // not to be looked at
}

TEST(SharedMemory, AFolder_HasANumberAndFreeSpace) {
  const SharedMemory here = LookAtSharedMemory("/dev/shm");
  EXPECT_NE(here.file_system, 0u);
  EXPECT_NE(here.file_system, LookAtSharedMemory("/proc").file_system);
  EXPECT_GT(here.free, 0);
  EXPECT_EQ(LookAtSharedMemory("/absent").file_system, 0u);
}

TEST(Cores, MoreRanksThanCores_IsWarnedOf) {
  EXPECT_EQ(BindingWarning({2, 2}, /*local_ranks=*/2, /*threads=*/1), "");
  EXPECT_EQ(BindingWarning({2, 2}, /*local_ranks=*/3, /*threads=*/1),
            "3 ranks share 2 cores and wait for each other in turn; start no more ranks than "
            "cores");
}

}  // namespace
}  // namespace trine
