// What marks a rank's contribution, and what is said of one that is not as it should be. That wrong
// ones end a job is cli_faults_test.py's.
#include "comm/seals.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "comm/sealed_gather.h"
#include "tests/kernels.h"

namespace trine {
namespace {

TEST(Seals, AllRanksKnowAll_AndNoTwoAreEqual) {
  std::vector<int64_t> seen;
  for (int64_t n = 0; n < 50; ++n) {
    uint64_t total = 0, last = 0;
    for (int rank = 0; rank < 5; ++rank) {
      Seals seals({rank, 5, rank, 5});
      for (int64_t i = 0; i < n; ++i) seals.Next();
      EXPECT_EQ(seals.mine(), seals.of(rank));
      seen.push_back(seals.mine());
      total += static_cast<uint64_t>(seals.mine());
      last = static_cast<uint64_t>(seals.total());
    }
    EXPECT_EQ(last, total);
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
}

TEST(Seals, Explanation_NamesRankAndCollective) {
  Seals seals({1, 3, 1, 3});
  for (int i = 0; i < 10; ++i) seals.Next();
  const int64_t total = seals.total(), whole = seals.of(2);
  EXPECT_EQ(seals.Explain(8, total, -whole),
            ", collective 3: the contribution of rank 2 is missing");
  Seals before({1, 3, 1, 3});
  for (int i = 0; i < 6; ++i) before.Next();
  EXPECT_EQ(seals.Explain(8, total, before.of(0) - seals.of(0)),
            ", collective 3: rank 0 sent again what it had sent to a collective before");
  EXPECT_EQ(seals.Explain(8, total, 4096),
            ", collective 3: bits of a rank's contribution were changed");
  EXPECT_EQ(seals.Explain(8, seals.of(0), 1),
            ", collective 3: what came from rank 0 is not what it should have sent");
  seals.Next();
  EXPECT_EQ(seals.Explain(8, total, -whole),
            ", collective 3: the contribution of rank 2 is missing");
}

TEST(SealPart, AnyFlippedBit_OtherSealOrPlace_IsSeen) {
  Matrix<float> x = RandomMatrix(3, 7, 1);
  std::vector<float> part(21 + kSealFloats);
  MakeBackend("generic")->SealPart(x.view(), 1234567, part.data());
  EXPECT_EQ(std::memcmp(part.data(), x.values.data(), 21 * 4), 0);
  const auto is_seen = [](std::vector<float> arrived, int64_t seal) {
    const auto backend = MakeBackend("generic");
    backend->CheckPart(arrived.data(), 21, seal);
    return backend->breach().seen;
  };
  EXPECT_FALSE(is_seen(part, 1234567));
  EXPECT_TRUE(is_seen(part, 1234568));
  EXPECT_TRUE(is_seen(std::vector<float>(21 + kSealFloats), 1234567)) << "nothing but zeros";
  for (size_t bit = 0; bit < part.size() * 32; ++bit) {
    std::vector<float> changed = part;
    uint32_t word = 0;
    std::memcpy(&word, &changed[bit / 32], 4);
    word ^= 1u << bit % 32;
    std::memcpy(&changed[bit / 32], &word, 4);
    EXPECT_TRUE(is_seen(changed, 1234567)) << bit;
  }
  std::swap(part[3], part[9]);
  EXPECT_TRUE(is_seen(part, 1234567));
}

// Parts of unequal length, one of them empty, again and again in the same memory.
TEST(SealedGather, GathersAsAllGatherDoes) {
  std::vector<ThreadRank> job = MakeThreadRanks(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      Seals seals({rank, 3, rank, 3});
      SealedGather gather(*job[static_cast<size_t>(rank)].comm, seals);
      for (int round = 0; round < 20; ++round) {
        const int64_t bytes[] = {5 + round, 0, 3000 - 100 * round};
        const std::vector<uint8_t> mine(static_cast<size_t>(bytes[rank]),
                                        uint8_t(10 * rank + round));
        std::vector<uint8_t> all(static_cast<size_t>(bytes[0] + bytes[2])), expected(all.size());
        std::fill_n(expected.begin(), bytes[0], uint8_t(round));
        std::fill(expected.begin() + bytes[0], expected.end(), uint8_t(20 + round));
        gather.Run(mine.data(), all.data(), bytes);
        EXPECT_EQ(all, expected);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace trine
