// Memory: what a host has, how many pages of the KV cache fit into it, what ranks hold then.
#include "src/core/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "src/core/memory.h"
#include "src/engine/fit_pages.h"
#include "tests/fixtures.h"
#include "tests/job.h"

namespace trine {
namespace {

// ---- the host

class HostMemoryTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(root_); }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  const std::string root_ = testing::TempDir() + "/trine_memory_test";
};

constexpr char kMeminfo[] = "MemFree: 5 kB\nMemTotal:       16000 kB\nMemAvailable: 7 kB\n";

TEST_F(HostMemoryTest, WithoutLimits_IsAll) {
  EXPECT_EQ(HostMemory(root_), int64_t{1} << 62);
  Write("/proc/meminfo", kMeminfo);
  EXPECT_EQ(HostMemory(root_), 16'384'000);
  Write("/proc/self/cgroup", "0::/a/b\n");
  EXPECT_EQ(HostMemory(root_), 16'384'000);
  Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(HostMemory(root_), 16'384'000);
}

TEST_F(HostMemoryTest, Version2_LeastOfTheGroupsAbove) {
  Write("/proc/meminfo", kMeminfo);
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "9000000\n");
  EXPECT_EQ(HostMemory(root_), 9'000'000);
  Write("/sys/fs/cgroup/a/memory.max", "8000000\n");
  EXPECT_EQ(HostMemory(root_), 8'000'000);
  Write("/sys/fs/cgroup/a/c/memory.max", "1\n");  // another group's
  EXPECT_EQ(HostMemory(root_), 8'000'000);
}

TEST_F(HostMemoryTest, Container_SeesItsLimitAtTheTop) {
  Write("/proc/meminfo", kMeminfo);
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "7000000\n");
  EXPECT_EQ(HostMemory(root_), 7'000'000);
  Write("/proc/self/cgroup", "0::/docker/not/seen/here\n");
  EXPECT_EQ(HostMemory(root_), 7'000'000);
}

TEST_F(HostMemoryTest, Version1_OfTheMemoryController) {
  Write("/proc/meminfo", kMeminfo);
  Write("/proc/self/cgroup", "3:cpu,cpuacct:/x\n2:hugetlb,memory:/a:b\n1:memoryless:/y\n");
  Write("/sys/fs/cgroup/memory/a:b/memory.limit_in_bytes", "6000000\n");
  Write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1\n");
  Write("/sys/fs/cgroup/memory/y/memory.limit_in_bytes", "1\n");
  EXPECT_EQ(HostMemory(root_), 6'000'000);
  Write("/sys/fs/cgroup/memory/a:b/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(HostMemory(root_), 16'384'000);
}

TEST(HostMemory, ThisHost_HasSome) {
  EXPECT_GT(HostMemory(), 100'000'000);
  EXPECT_LT(HostMemory(), int64_t{1} << 50);
}

TEST(MemoryText, Units) {
  EXPECT_EQ(MemoryText(12), "12 bytes");
  EXPECT_EQ(MemoryText(3'149), "3.1 KB");
  EXPECT_EQ(MemoryText(20'000'000), "20.0 MB");
  EXPECT_EQ(MemoryText(1'500'000'000), "1.50 GB");
}

// ---- the plan

// One rank of 1000 bytes beside the cache, pages of 100.
RankRoom Room(int64_t available, int64_t pages, int64_t fixed = 1000, int64_t page = 100) {
  RankRoom room;
  room.memory.resident = fixed / 2;
  room.memory.state = fixed / 4;
  room.memory.workspace = fixed - fixed / 2 - fixed / 4;
  room.memory.kv = pages * page;
  room.available = available;
  return room;
}

// Three sequences of four pages.
JobPlan ThreeSequences() {
  JobPlan plan;
  plan.limits.context = 4 * kPageTokens;
  plan.limits.sequences = 3;
  plan.limits.pages = 12;
  return plan;
}

SessionOptions AtOnce(int64_t sequences) {
  SessionOptions options;
  options.sequences = sequences;
  return options;
}

int64_t Fit(const std::vector<RankRoom>& ranks, const SessionOptions& options) {
  const Result<int64_t> pages = FitPages(ranks, options, ThreeSequences());
  EXPECT_TRUE(pages.ok()) << pages.status().message();
  return pages.ok() ? *pages : -1;
}

std::string FitError(const std::vector<RankRoom>& ranks, const SessionOptions& options) {
  return FitPages(ranks, options, ThreeSequences()).status().message();
}

TEST(FitPages, TightestRankDecides) {
  SessionOptions options = AtOnce(3);
  EXPECT_EQ(Fit({Room(1'000'000, 12)}, options), 12);
  EXPECT_EQ(Fit({Room(2200, 12)}, options), 12);
  EXPECT_EQ(Fit({Room(2199, 12)}, options), 11);
  EXPECT_EQ(Fit({Room(1400, 12)}, options), 4);
  EXPECT_EQ(Fit({Room(1900, 12), Room(1799, 12), Room(2000, 12)}, options), 7);
  // Uneven shares: the larger pages are the fewer.
  EXPECT_EQ(Fit({Room(2000, 12), Room(3000, 12, 1500, 250)}, options), 6);
  options.kv_memory = 999;
  EXPECT_EQ(Fit({Room(1900, 12), Room(5000, 12, 1000, 200)}, options), 4);
  EXPECT_EQ(PagesThatFit(std::vector{Room(1'000'000, 12)}, AtOnce(3), ThreeSequences()), 9990);
}

// What is asked for and not needed does not have to fit.
TEST(FitPages, KvMemory_IsTakenUpToWhatSequencesNeed) {
  SessionOptions options = AtOnce(3);
  options.kv_memory = 1'000'000;
  EXPECT_EQ(Fit({Room(2200, 12)}, options), 12);
}

TEST(FitPages, NoAttention_NoPages) {
  EXPECT_EQ(Fit({Room(1000, 12, 1000, 0)}, AtOnce(3)), 12);
  EXPECT_NE(FitError({Room(999, 12, 1000, 0)}, AtOnce(3)), "");
}

TEST(FitPages, Errors_NameBothNumbersAndTheRemedy) {
  SessionOptions options = AtOnce(1);
  EXPECT_EQ(FitError({Room(1399, 12)}, options),
            "the model needs 1.4 KB for a context of 128 tokens (400 bytes of KV cache, 1.0 KB "
            "beside it) of the 1.4 KB that it may take; use -c 96 or less, -ctk q8_0, ranks on "
            "more hosts or a larger --memory-fraction");
  EXPECT_EQ(FitError({Room(9000, 12), Room(1099, 12)}, AtOnce(2)),
            "rank 1 needs 1.4 KB for a context of 128 tokens (400 bytes of KV cache, 1.0 KB beside "
            "it) of the 1.1 KB that it may take; use fewer sequences at once, ranks on "
            "more hosts or a larger --memory-fraction");
  options.kv_type = KvType::kQ8_0;
  EXPECT_EQ(FitError({Room(2'500'000, 12, 3'000'000'000, 1'000'000)}, options),
            "the model needs 3.00 GB for a context of 128 tokens (4.0 MB of KV cache, 3.00 GB "
            "beside it) of the 2.5 MB that it may take; use ranks on more hosts or a larger "
            "--memory-fraction");
  options.kv_memory = 399;
  EXPECT_EQ(FitError({Room(9000, 12)}, options),
            "a context of 128 tokens needs 400 bytes of KV cache, --kv-memory is 399 bytes; use -c "
            "96 or less, or --kv-memory 1KB");
  options.kv_memory = 1500;
  EXPECT_EQ(FitError({Room(9000, 12), Room(2100, 12)}, options),
            "with --kv-memory 1.5 KB rank 1 needs 2.2 KB (1.0 KB beside the KV cache) of the 2.1 "
            "KB that it may take; use a smaller one, ranks on more hosts or a larger "
            "--memory-fraction");
}

// ---- jobs

// The bytes that one rank of a plan holds, without what the communicator has.
int64_t Planned(const RankMemory& memory) {
  return memory.total() - memory.comm;
}

std::vector<RankRoom> Rooms(const SessionOptions& options, const std::vector<int64_t>& available,
                            int64_t* pages) {
  const auto store = OpenWeights(options.model);
  EXPECT_TRUE(store.ok()) << store.status().message();
  auto plan = PlanJob(**store, options, static_cast<int>(available.size()));
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  const auto rooms = PlanRooms(**store, options, *plan, available);
  const auto fitting = FitPages(*rooms, options, *plan);
  EXPECT_TRUE(fitting.ok()) << fitting.status().message();
  plan->limits.pages = *pages = *fitting;
  return *PlanRooms(**store, options, *plan, available);
}

struct Opened {
  Status status;
  int64_t pages = 0;
  int64_t bytes = 0;  // that the rank's backend handed out
};

// A job whose ranks may differ in what they are given.
std::vector<Opened> OpenRanks(const std::vector<SessionOptions>& options) {
  std::vector<ThreadRank> job = MakeThreadRanks(static_cast<int>(options.size()));
  std::vector<Opened> opened(options.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < job.size(); ++rank) {
    threads.emplace_back([&, rank] {
      auto session = Session::Open(options[rank], *job[rank].control, *job[rank].comm, {});
      opened[rank].status = session.status();
      if (!session.ok()) return;
      opened[rank].pages = (*session)->scheduler_limits().pages;
      opened[rank].bytes = (*session)->backend().allocated();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return opened;
}

constexpr const char* kModels[] = {"qwen3_q4_1", "qwen35_a_rot_ptq1_0", "llama_f32"};

TEST(JobMemory, RanksHoldWhatThePlanSays) {
  for (const char* name : kModels) {
    for (int ranks = 1; ranks <= 3; ++ranks) {
      SessionOptions options = TinyOptions(name);
      options.snapshots = 2;
      if (ranks > 1) options.split.assign(static_cast<size_t>(ranks), 1);
      if (ranks > 1) options.split[1] = 2;
      int64_t all = 0, fewer = 0;
      const std::vector<int64_t> plenty(static_cast<size_t>(ranks), int64_t{1} << 40);
      std::vector<RankRoom> rooms = Rooms(options, plenty, &all);
      EXPECT_EQ(all, 4 * PagesFor(256)) << name;
      for (const bool tight : {false, true}) {
        if (tight) {  // the largest rank lacks room for two pages
          const RankMemory largest = std::ranges::max(rooms, {}, [](const RankRoom& room) {
                                       return room.memory.total();
                                     }).memory;
          options.memory = largest.total() - largest.kv / all - 1;
          const std::vector<int64_t> same(static_cast<size_t>(ranks), options.memory);
          rooms = Rooms(options, same, &fewer);
          EXPECT_LE(fewer, all - 2) << name << ranks;
          EXPECT_GE(fewer, PagesFor(256)) << name << ranks;
        }
        const std::vector<Opened> opened =
            OpenRanks(std::vector<SessionOptions>(static_cast<size_t>(ranks), options));
        for (size_t rank = 0; rank < opened.size(); ++rank) {
          ASSERT_TRUE(opened[rank].status.ok()) << opened[rank].status.message();
          EXPECT_EQ(opened[rank].pages, tight ? fewer : all) << name << rank;
          EXPECT_EQ(opened[rank].bytes, Planned(rooms[rank].memory)) << name << rank;
        }
      }
    }
  }
}

// Hosts differ: every rank takes the pages of the one that has the least room.
TEST(JobMemory, DifferentLimits_SamePages) {
  for (int ranks = 1; ranks <= 3; ++ranks) {
    for (int tight = 0; tight < ranks; ++tight) {
      std::vector<SessionOptions> options(static_cast<size_t>(ranks), TinyOptions("qwen3_q4_1"));
      int64_t all = 0;
      const std::vector<int64_t> plenty(options.size(), int64_t{1} << 40);
      const RankMemory memory = Rooms(options[0], plenty, &all)[static_cast<size_t>(tight)].memory;
      SessionOptions& least = options[static_cast<size_t>(tight)];
      least.memory = memory.total() - 5 * memory.kv / all;
      for (const Opened& rank : OpenRanks(options)) {
        EXPECT_TRUE(rank.status.ok()) << rank.status.message();
        EXPECT_EQ(rank.pages, all - 5);
      }
      least.memory = memory.total() - memory.kv;
      for (const Opened& rank : OpenRanks(options)) {
        const std::string who = ranks == 1 ? "the model" : "rank " + std::to_string(tight);
        EXPECT_TRUE(rank.status.message().starts_with(who + " needs ")) << rank.status.message();
      }
    }
  }
}

// More text than the cache holds: sequences take turns, and say what they say alone.
TEST(JobMemory, SmallKvMemory_SameTexts) {
  for (const char* name : {"qwen3_q4_1", "qwen35_a_rot_ptq1_0"}) {
    SessionOptions options = TinyOptions(name);
    options.snapshots = 4;
    std::vector<Request> requests(4);
    for (size_t i = 0; i < requests.size(); ++i) {
      for (int32_t t = 0; t < 150; ++t) {
        requests[i].prompt.push_back((t + static_cast<int32_t>(i)) * 7 % 250 + 3);
      }
      requests[i].max_tokens = 100;
      requests[i].sampling = {.temperature = 1.2f, .seed = i};
    }
    const auto texts = [&](int ranks, const std::vector<Request>& some, int64_t* preemptions) {
      std::map<int64_t, std::vector<int32_t>> tokens;
      const Status status = RunJob(ranks, options, [&](Session& session) {
        Scheduler scheduler(session.scheduler_limits());
        for (const Request& request : some) ASSERT_TRUE(scheduler.Submit(request).ok());
        while (!scheduler.idle()) {
          for (const TokenEvent& event : session.Step(scheduler)) {
            tokens[event.request].push_back(event.token);
          }
        }
        *preemptions = scheduler.preemptions();
      });
      EXPECT_TRUE(status.ok()) << status.message();
      return tokens;
    };
    int64_t preemptions = 0, all = 0;
    std::vector<std::vector<int32_t>> alone;
    for (const Request& request : requests) alone.push_back(texts(1, {request}, &preemptions)[0]);
    const int64_t page = Rooms(options, {int64_t{1} << 40}, &all)[0].memory.kv / all;
    options.kv_memory = 12 * page;  // one sequence has eight
    for (const int ranks : {1, 2}) {
      auto together = texts(ranks, requests, &preemptions);
      EXPECT_GT(preemptions, 0);
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(together[static_cast<int64_t>(i)], alone[i]) << name << i;
      }
    }
  }
}

// What fits fits, and no more does.
TEST(JobMemory, MostContextAndSequences_AreTheMost) {
  for (const char* name : kModels) {
    const auto store = OpenWeights(DataPath("tiny/" + std::string(name) + ".gguf"));
    ASSERT_TRUE(store.ok());
    SessionOptions options = TinyOptions(name);
    options.sequences = 2;
    options.snapshots = 6;
    const auto fits = [&](const std::vector<int64_t>& available, int64_t sequences,
                          int64_t context) {
      SessionOptions some = options;
      some.sequences = sequences;
      some.snapshots = 3 * sequences;
      some.context = context;
      const auto plan = PlanJob(**store, some, static_cast<int>(available.size()));
      return PagesThatFit(*PlanRooms(**store, some, *plan, available), some, *plan);
    };
    for (const std::vector<int64_t>& available :
         {std::vector<int64_t>{6'000'000}, {9'000'000, 7'000'000}, {100'000}}) {
      const int64_t context = *MostContext(**store, options, available);
      const int64_t at_least = fits(available, 2, 256);
      EXPECT_EQ(context, std::min<int64_t>(at_least * kPageTokens, 256)) << name;
      options.context = 64;
      const int64_t sequences = *MostSequences(**store, options, available);
      options.context = 4096;
      if (sequences > 0) {
        EXPECT_GE(fits(available, sequences, 64), sequences * PagesFor(64)) << name;
      }
      EXPECT_LT(fits(available, sequences + 1, 64), (sequences + 1) * PagesFor(64)) << name;
      EXPECT_EQ(sequences > 0, available[0] > 100'000) << name;
    }
  }
}

}  // namespace
}  // namespace trine
