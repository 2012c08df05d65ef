// Many small collectives by ranks that come early and late at random, every element compared:
//   mpirun -np 3 communicator_soak shm|mpi COLLECTIVES
// Prints what it did; the first wrong element ends the job.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "comm/mpi.h"
#include "comm/split_mix.h"

namespace trine {
namespace {

// What a rank contributes to element i of the nth collective.
int64_t Value(int rank, int64_t nth, int64_t i) {
  return static_cast<int64_t>(SplitMix(static_cast<uint64_t>(nth) * 1000003 +
                                       static_cast<uint64_t>(i) * 64 +
                                       static_cast<uint64_t>(rank)));
}

int64_t Sum(int ranks, int64_t nth, int64_t i) {
  uint64_t sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += static_cast<uint64_t>(Value(rank, nth, i));
  return static_cast<int64_t>(sum);
}

void Jitter(int rank, int64_t nth) {
  const uint64_t dice =
      SplitMix(static_cast<uint64_t>(nth) * 64 + static_cast<uint64_t>(rank) + 77);
  if (dice % 4096 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (dice % 32 != 1) return;
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(dice / 32 % 40);
  while (std::chrono::steady_clock::now() < end) {
  }
}

class Soak {
 public:
  explicit Soak(Communicator& comm) : comm_(comm), world_(comm.world()) {}

  void Run(int64_t nth) {
    Jitter(world_.rank, nth);
    counts_.clear();
    int64_t total = 0, before = 0;
    for (int rank = 0; rank < world_.size; ++rank) {
      counts_.push_back(
          static_cast<int64_t>(SplitMix(static_cast<uint64_t>(nth * 31 + rank)) % 40));
      if (rank < world_.rank) before += counts_.back();
      total += counts_.back();
    }
    const int64_t mine = counts_[static_cast<size_t>(world_.rank)];
    switch (SplitMix(static_cast<uint64_t>(nth)) % 3) {
      case 0:
        Fill(total, nth);
        comm_.AllReduceSum(data_.data(), total, Element::kInt64);
        for (int64_t i = 0; i < total; ++i) Expect(data_, i, Sum(world_.size, nth, i), nth);
        return;
      case 1:
        Fill(mine, nth);
        all_.assign(static_cast<size_t>(total), 0);
        comm_.AllGather(data_.data(), all_.data(), counts_, Element::kInt64);
        for (int64_t rank = 0, at = 0; rank < world_.size; ++rank) {
          for (int64_t i = 0; i < counts_[static_cast<size_t>(rank)]; ++i, ++at) {
            Expect(all_, at, Value(static_cast<int>(rank), nth, i), nth);
          }
        }
        return;
      default:
        Fill(total, nth);
        all_.assign(static_cast<size_t>(mine), 0);
        comm_.ReduceScatterSum(data_.data(), all_.data(), counts_, Element::kInt64);
        for (int64_t i = 0; i < mine; ++i) Expect(all_, i, Sum(world_.size, nth, before + i), nth);
    }
  }

 private:
  void Fill(int64_t count, int64_t nth) {
    data_.resize(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) data_[static_cast<size_t>(i)] = Value(world_.rank, nth, i);
  }

  void Expect(const std::vector<int64_t>& data, int64_t i, int64_t value, int64_t nth) {
    if (data[static_cast<size_t>(i)] == value) return;
    comm_.Abort("collective " + std::to_string(nth) + ", element " + std::to_string(i) +
                " is wrong");
  }

  Communicator& comm_;
  const World world_;
  std::vector<int64_t> counts_, data_, all_;
};

int Main(int argc, char** argv) {
  MpiJob job(&argc, &argv);
  if (argc < 3) return 2;
  const bool shm = std::string(argv[1]) == "shm";
  const int64_t collectives = std::atoll(argv[2]);
  const auto comm = shm ? job.MakeShmCommunicator() : job.MakeMpiCommunicator();
  Soak soak(*comm);
  const auto start = std::chrono::steady_clock::now();
  for (int64_t nth = 0; nth < collectives; ++nth) soak.Run(nth);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (job.world().rank == 0) {
    std::printf("%lld collectives on %d ranks by %s in %.1f s, all right\n",
                static_cast<long long>(collectives), job.world().size, argv[1], seconds.count());
  }
  return 0;
}

}  // namespace
}  // namespace trine

int main(int argc, char** argv) {
  return trine::Main(argc, argv);
}
