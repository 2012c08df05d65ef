// The contract of comm/ as tests: one body for every backend. A test file that includes this
// instantiates CommunicatorContract with its backends; each case runs once on every rank.
//
// Cases use EXPECT only: a rank that left early would leave the others waiting.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "comm/control.h"

namespace trine {

using RankBody = std::function<void(Communicator&, ControlChannel&)>;

struct CommunicatorBackend {
  std::string name;
  std::function<void(const RankBody&)> on_each_rank;  // runs a body on the ranks of this process
};

inline void PrintTo(const CommunicatorBackend& backend, std::ostream* out) {
  *out << backend.name;
}

inline std::string BackendName(const testing::TestParamInfo<CommunicatorBackend>& info) {
  return info.param.name;
}

class CommunicatorContract : public testing::TestWithParam<CommunicatorBackend> {
 protected:
  static void OnEachRank(const RankBody& body) {
    GetParam().on_each_rank([&](Communicator& comm, ControlChannel& control) {
      SCOPED_TRACE("rank " + std::to_string(comm.world().rank));
      body(comm, control);
    });
  }
};

// Around the block of the sum (64), the sizes of a decode step, and both sides of every limit:
// 32 KiB for slices, 1 MiB slots, 4 MiB messages.
inline const std::vector<int64_t> kCounts = {0, 1, 2, 7, 578, 5122, 100'003, 700'001};

inline uint64_t Hash(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

template <typename T>
T ValueAt(int rank, int64_t index);

template <>
inline std::byte ValueAt(int rank, int64_t index) {
  return static_cast<std::byte>(Hash(static_cast<uint64_t>(index * 1024 + rank)) & 255);
}

// All 64 bits vary, so sums overflow.
template <>
inline int64_t ValueAt(int rank, int64_t index) {
  return static_cast<int64_t>(Hash(static_cast<uint64_t>(index * 1024 + rank)));
}

// Both signs and forty binary orders of magnitude, so the order of a sum shows in its bits.
template <>
inline float ValueAt(int rank, int64_t index) {
  const uint64_t hash = Hash(static_cast<uint64_t>(index * 1024 + rank));
  const auto mantissa = static_cast<float>(static_cast<int64_t>(hash % 20'001) - 10'000);
  return std::ldexp(mantissa, static_cast<int>((hash >> 32) % 40) - 20);
}

template <typename T>
constexpr Element ElementOf() {
  return sizeof(T) == 1 ? Element::kByte : sizeof(T) == 4 ? Element::kFloat32 : Element::kInt64;
}

inline int64_t Add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
inline float Add(float a, float b) {
  return a + b;
}

template <typename T>
std::vector<T> Values(int rank, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = ValueAt<T>(rank, i);
  return values;
}

// Added in the order in which the ranks are given.
template <typename T>
std::vector<T> SumOfValues(const std::vector<int>& ranks, int64_t count) {
  std::vector<T> sum = Values<T>(ranks[0], count);
  for (size_t r = 1; r < ranks.size(); ++r) {
    const std::vector<T> next = Values<T>(ranks[r], count);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = Add(sum[i], next[i]);
  }
  return sum;
}

inline std::vector<int> RanksInOrder(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

template <typename T>
std::vector<T> Slice(const std::vector<T>& all, int64_t begin, int64_t count) {
  return {all.begin() + begin, all.begin() + begin + count};
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Names the first difference; a dump of 700,001 values would help nobody.
template <typename T>
void ExpectSameBits(const std::vector<T>& actual, const std::vector<T>& expected,
                    const std::string& what) {
  EXPECT_EQ(actual.size(), expected.size()) << what;
  if (SameBits(actual, expected) || actual.size() != expected.size()) return;
  size_t i = 0;
  while (std::memcmp(&actual[i], &expected[i], sizeof(T)) == 0) ++i;
  ADD_FAILURE() << what << ": element " << i << " of " << actual.size() << " is "
                << testing::PrintToString(actual[i]) << ", not "
                << testing::PrintToString(expected[i]);
}

// Between nothing and a few hundred microseconds; differs by rank and call.
inline void RandomDelay(std::minstd_rand& random) {
  const auto draw = random() % 64;
  if (draw == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
  } else if (draw < 16) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 20);
    while (std::chrono::steady_clock::now() < end) {
    }
  }
}

// Uneven parts by rank: none, a few, and only one, which needs several slots or messages.
inline std::vector<std::vector<int64_t>> UnevenCounts(int size) {
  std::vector<std::vector<int64_t>> cases = {std::vector<int64_t>(static_cast<size_t>(size), 0),
                                             std::vector<int64_t>(static_cast<size_t>(size), 1)};
  for (int64_t scale : {1, 29, 20'011}) {
    std::vector<int64_t> counts;
    for (int64_t rank = 0; rank < size; ++rank) counts.push_back((rank * 5 + 2) % 7 * scale);
    cases.push_back(counts);
  }
  for (const int only : {0, size - 1}) {
    std::vector<int64_t> counts(static_cast<size_t>(size), 0);
    counts[static_cast<size_t>(only)] = 600'011;
    cases.push_back(counts);
  }
  return cases;
}

inline Bytes Message(int rank, int64_t bytes) {
  return Values<std::byte>(rank, bytes);
}

template <typename T>
void CheckAllReduceSum(Communicator& comm, int64_t count) {
  std::vector<T> data = Values<T>(comm.world().rank, count);
  comm.AllReduceSum(data.data(), count, ElementOf<T>());
  ExpectSameBits(data, SumOfValues<T>(RanksInOrder(comm.world().size), count),
                 "sum of " + std::to_string(count));
}

template <typename T>
void CheckAllGather(Communicator& comm, const std::vector<int64_t>& counts) {
  const int my_rank = comm.world().rank;
  std::vector<T> expected;
  int64_t my_offset = 0;
  for (int rank = 0; rank < comm.world().size; ++rank) {
    if (rank == my_rank) my_offset = static_cast<int64_t>(expected.size());
    const std::vector<T> part = Values<T>(rank, counts[static_cast<size_t>(rank)]);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  const std::vector<T> mine = Values<T>(my_rank, counts[static_cast<size_t>(my_rank)]);

  std::vector<T> all(expected.size());
  comm.AllGather(mine.data(), all.data(), counts, ElementOf<T>());
  ExpectSameBits(all, expected, "gathered");

  std::fill(all.begin(), all.end(), T{});
  std::copy(mine.begin(), mine.end(), all.begin() + my_offset);
  comm.AllGather(all.data() + my_offset, all.data(), counts, ElementOf<T>());
  ExpectSameBits(all, expected, "gathered in place");
}

template <typename T>
void CheckReduceScatterSum(Communicator& comm, const std::vector<int64_t>& counts) {
  const int my_rank = comm.world().rank;
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const int64_t my_count = counts[static_cast<size_t>(my_rank)];
  const int64_t my_offset = std::accumulate(counts.begin(), counts.begin() + my_rank, int64_t{0});
  const std::vector<T> expected =
      Slice(SumOfValues<T>(RanksInOrder(comm.world().size), total), my_offset, my_count);

  std::vector<T> all = Values<T>(my_rank, total);
  std::vector<T> mine(static_cast<size_t>(my_count));
  comm.ReduceScatterSum(all.data(), mine.data(), counts, ElementOf<T>());
  ExpectSameBits(mine, expected, "scattered apart");

  // At its own place, one element off on either side, and at the front.
  for (const int64_t place : {my_offset, std::max<int64_t>(my_offset - 1, 0),
                              std::min(my_offset + 1, total - my_count), int64_t{0}}) {
    all = Values<T>(my_rank, total);
    comm.ReduceScatterSum(all.data(), all.data() + place, counts, ElementOf<T>());
    ExpectSameBits(Slice(all, place, my_count), expected, "scattered to " + std::to_string(place));
  }
}

TEST_P(CommunicatorContract, AllReduceSum_Int64OfAnyCount_IsExact) {
  OnEachRank([](Communicator& comm, ControlChannel&) {
    for (const int64_t count : kCounts) CheckAllReduceSum<int64_t>(comm, count);
  });
}

TEST_P(CommunicatorContract, AllReduceSum_Float32OfAnyCount_HasTheBitsOfRankOrder) {
  OnEachRank([](Communicator& comm, ControlChannel&) {
    for (const int64_t count : kCounts) CheckAllReduceSum<float>(comm, count);

    // Two numbers have one sum; from three on, the values must be such that the order matters.
    std::vector<int> ranks = RanksInOrder(comm.world().size);
    const std::vector<float> in_order = SumOfValues<float>(ranks, 578);
    std::reverse(ranks.begin(), ranks.end());
    EXPECT_EQ(SameBits(in_order, SumOfValues<float>(ranks, 578)), comm.world().size <= 2);
  });
}

TEST_P(CommunicatorContract, AllReduceSum_Int64Overflow_Wraps) {
  OnEachRank([](Communicator& comm, ControlChannel&) {
    const bool last = comm.world().rank == comm.world().size - 1;
    int64_t value[2] = {comm.world().rank == 0 ? INT64_MAX : 0, 0};
    if (last) value[0] = Add(value[0], 1);
    comm.AllReduceSum(value, 2, Element::kInt64);
    EXPECT_EQ(value[0], INT64_MIN);
    EXPECT_EQ(value[1], 0);
  });
}

TEST_P(CommunicatorContract, AllReduceSum_ManyInARowWithDelays_NeverMixesTwo) {
  OnEachRank([](Communicator& comm, ControlChannel&) {
    const World& world = comm.world();
    std::minstd_rand random(static_cast<unsigned>(world.rank + 1));
    int64_t wrong = 0;
    for (int64_t round = 0; round < 2'000; ++round) {
      int64_t data[3];
      int64_t expected[3] = {};
      for (int64_t i = 0; i < 3; ++i) {
        data[i] = ValueAt<int64_t>(world.rank, round * 3 + i);
        for (int r = 0; r < world.size; ++r) {
          expected[i] = Add(expected[i], ValueAt<int64_t>(r, round * 3 + i));
        }
      }
      RandomDelay(random);
      comm.AllReduceSum(data, 3, Element::kInt64);
      wrong += std::equal(data, data + 3, expected) ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0);
  });
}

TEST_P(CommunicatorContract, AllGather_UnevenCounts_ConcatenatesByRank) {
  OnEachRank([](Communicator& comm, ControlChannel&) {
    for (const std::vector<int64_t>& counts : UnevenCounts(comm.world().size)) {
      CheckAllGather<std::byte>(comm, counts);
      CheckAllGather<float>(comm, counts);
      CheckAllGather<int64_t>(comm, counts);
    }
  });
}

TEST_P(CommunicatorContract, ReduceScatterSum_UnevenCounts_GivesEachRankItsPart) {
  OnEachRank([](Communicator& comm, ControlChannel&) {
    for (const std::vector<int64_t>& counts : UnevenCounts(comm.world().size)) {
      CheckReduceScatterSum<float>(comm, counts);
      CheckReduceScatterSum<int64_t>(comm, counts);
    }
  });
}

// Different collectives share slots, tags and scratch memory.
TEST_P(CommunicatorContract, Collectives_AnyKindInAnyOrder_DoNotDisturbEachOther) {
  OnEachRank([](Communicator& comm, ControlChannel& control) {
    std::minstd_rand script(7);  // the same on every rank
    std::minstd_rand delays(static_cast<unsigned>(comm.world().rank + 1));
    for (int step = 0; step < 200; ++step) {
      const auto kind = script() % 6;
      const auto count = static_cast<int64_t>(script() % (step % 20 == 0 ? 300'000 : 300));
      std::vector<int64_t> counts(static_cast<size_t>(comm.world().size));
      for (int64_t& part : counts) part = static_cast<int64_t>(script() % 400);
      RandomDelay(delays);
      if (kind == 0) CheckAllReduceSum<float>(comm, count);
      if (kind == 1) CheckAllReduceSum<int64_t>(comm, count);
      if (kind == 2) CheckAllGather<std::byte>(comm, counts);
      if (kind == 3) CheckReduceScatterSum<int64_t>(comm, counts);
      if (kind == 4) control.Barrier();
      if (kind == 5) {
        EXPECT_EQ(control.AllGather(Message(comm.world().rank, 3)).size(), counts.size());
      }
    }
  });
}

TEST_P(CommunicatorContract, Broadcast_AnyLengthFromFirstAndLastRank_ReplacesEveryMessage) {
  OnEachRank([](Communicator&, ControlChannel& control) {
    std::vector<int64_t> lengths = {0, 10, 1 << 20, 9'000'001};
    for (int64_t length = 4'080; length <= 4'100; ++length) lengths.push_back(length);
    for (const int root : {0, control.world().size - 1}) {
      for (const int64_t length : lengths) {
        const Bytes sent = Message(root, length);
        Bytes message = control.world().rank == root ? sent : Message(99, 17);
        control.Broadcast(message, root);
        ExpectSameBits(message, sent, "message of " + std::to_string(length));
      }
    }
  });
}

TEST_P(CommunicatorContract, AllGather_MessagesOfUnevenLength_ReturnsThemByRank) {
  OnEachRank([](Communicator&, ControlChannel& control) {
    const auto length = [](int rank) { return rank % 3 == 1 ? 0 : int64_t{rank} * 3'001 + 5; };
    const std::vector<Bytes> all =
        control.AllGather(Message(control.world().rank, length(control.world().rank)));
    EXPECT_EQ(all.size(), static_cast<size_t>(control.world().size));
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const int r = static_cast<int>(rank);
      ExpectSameBits(all[rank], Message(r, length(r)), "message of rank " + std::to_string(r));
    }
  });
}

// One host has one steady clock.
TEST_P(CommunicatorContract, Barrier_LateRank_HoldsEveryRank) {
  OnEachRank([](Communicator&, ControlChannel& control) {
    const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
    for (int late = 0; late < control.world().size; ++late) {
      if (control.world().rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const int64_t entered = now();
      control.Barrier();
      const int64_t left = now();
      Bytes mine(sizeof entered);
      std::memcpy(mine.data(), &entered, sizeof entered);
      for (const Bytes& other : control.AllGather(mine)) {
        int64_t theirs = 0;
        std::memcpy(&theirs, other.data(), sizeof theirs);
        EXPECT_LE(theirs, left);
      }
    }
  });
}

TEST_P(CommunicatorContract, Agree_AllOk_IsOk) {
  OnEachRank([](Communicator&, ControlChannel& control) {
    const Status agreed = control.Agree({});
    EXPECT_TRUE(agreed.ok());
    EXPECT_EQ(agreed.message(), "");
  });
}

TEST_P(CommunicatorContract, Agree_AllSayTheSame_IsTheBareMessage) {
  OnEachRank([](Communicator&, ControlChannel& control) {
    const Status agreed = control.Agree(BadInput("a.gguf: no such file"));
    EXPECT_EQ(agreed.code(), Code::kBadInput);
    EXPECT_EQ(agreed.message(), "a.gguf: no such file");
  });
}

TEST_P(CommunicatorContract, Agree_OneFails_NamesItsRankEverywhere) {
  OnEachRank([](Communicator&, ControlChannel& control) {
    const World& world = control.world();
    for (int failing = 0; failing < world.size; ++failing) {
      const Status agreed =
          control.Agree(world.rank == failing ? Status(Code::kUsage, "out of memory") : Status());
      EXPECT_EQ(agreed.code(), Code::kUsage);
      const std::string prefix = failing == 0 ? "" : "rank " + std::to_string(failing) + ": ";
      EXPECT_EQ(agreed.message(), prefix + "out of memory");
    }
  });
}

TEST_P(CommunicatorContract, Agree_SeveralFail_IsTheFirstRanksError) {
  OnEachRank([](Communicator&, ControlChannel& control) {
    const World& world = control.world();
    const int first = (world.size - 1) / 2;
    const Status mine = world.rank < first    ? Status()
                        : world.rank == first ? BadInput("first")
                                              : Status(Code::kUsage, "later");
    const Status agreed = control.Agree(mine);
    EXPECT_EQ(agreed.code(), Code::kBadInput);
    const std::string prefix = first == 0 ? "" : "rank " + std::to_string(first) + ": ";
    EXPECT_EQ(agreed.message(), prefix + "first");
  });
}

}  // namespace trine
