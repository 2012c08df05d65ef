// The backends that need no launcher: one rank, and ranks as threads. The same body runs under
// mpirun in mpi/communicator_mpi_test.cc.
#include "comm/communicator.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/communicator_cases.h"

namespace trine {
namespace {

CommunicatorBackend Self() {
  return {"Self", [](const RankBody& body) { body(*MakeSelfCommunicator(), *MakeSelfControl()); }};
}

CommunicatorBackend Threads(int size) {
  return {
      "Threads" + std::to_string(size), [size](const RankBody& body) {
        std::vector<std::thread> threads;
        for (ThreadRank& rank : MakeThreadRanks(size)) {
          threads.emplace_back([&body, own = std::move(rank)] { body(*own.comm, *own.control); });
        }
        for (std::thread& thread : threads) thread.join();
      }};
}

INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorContract,
                         testing::Values(Self(), Threads(1), Threads(2), Threads(3), Threads(4),
                                         Threads(7)),
                         BackendName);

TEST(Communicator, World_ThreadRanks_AreNumberedOnOneHost) {
  const std::vector<ThreadRank> ranks = MakeThreadRanks(3);
  for (int rank = 0; rank < 3; ++rank) {
    const ThreadRank& thread_rank = ranks[static_cast<size_t>(rank)];
    for (const World& world : {thread_rank.comm->world(), thread_rank.control->world()}) {
      EXPECT_EQ(world.rank, rank);
      EXPECT_EQ(world.size, 3);
      EXPECT_EQ(world.local_rank, rank);
      EXPECT_EQ(world.local_size, 3);
    }
    EXPECT_EQ(thread_rank.comm->name(), "shm");
  }
}

TEST(CommunicatorDeathTest, AllReduceSum_Bytes_AbortsWithRankAndReason) {
  std::byte data[2] = {};
  EXPECT_DEATH(MakeSelfCommunicator()->AllReduceSum(data, 2, Element::kByte),
               "\\[rank 0/1\\] AllReduceSum: bytes are not summable");
  EXPECT_DEATH(MakeThreadRanks(3)[2].comm->AllReduceSum(data, 2, Element::kByte),
               "\\[rank 2/3\\] AllReduceSum: bytes are not summable");
}

TEST(CommunicatorDeathTest, ReduceScatterSum_Bytes_AbortsWithRankAndReason) {
  std::byte data[2] = {};
  const std::vector<int64_t> counts = {2};
  EXPECT_DEATH(MakeSelfCommunicator()->ReduceScatterSum(data, data, counts, Element::kByte),
               "\\[rank 0/1\\] ReduceScatterSum: bytes are not summable");
  EXPECT_DEATH(MakeThreadRanks(1)[0].comm->ReduceScatterSum(data, data, counts, Element::kByte),
               "\\[rank 0/1\\] ReduceScatterSum: bytes are not summable");
}

}  // namespace
}  // namespace trine
