// Ranks as threads of one process. The data plane is shm.cc's over a region on the heap; only the
// control plane is written here.
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "comm/communicator.h"
#include "comm/shm.h"

namespace trine {
namespace {

// Where the threads leave messages for each other. As in shm.cc, rounds use the two halves in turn,
// so that nobody overwrites what another one still reads.
class Board {
 public:
  explicit Board(int size) : size_(size) {
    for (auto& half : halves_) {
      half.resize(static_cast<size_t>(size));
      for (Bytes& message : half) message.reserve(kRoom);
    }
  }

  // Leaves a message and returns everyone's, once everyone has come. The reference holds until this
  // rank's next call.
  const std::vector<Bytes>& Post(int rank, const Bytes& message) {
    std::unique_lock lock(mutex_);
    const uint64_t round = round_;
    std::vector<Bytes>& half = halves_[round % 2];
    half[static_cast<size_t>(rank)] = message;  // into the memory of an earlier one
    if (++arrived_ == size_) {
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&] { return round_ != round; });
    }
    return half;
  }

 private:
  static constexpr size_t kRoom = 64 << 10;  // that usual messages take no memory

  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
  uint64_t round_ = 0;
  std::vector<Bytes> halves_[2];
};

class ThreadControl final : public ControlChannel {
 public:
  ThreadControl(const World& world, std::shared_ptr<Board> board)
      : world_(world), board_(std::move(board)) {}

  const World& world() const override { return world_; }

  void Broadcast(Bytes& message, int root) override {
    const bool is_root = world_.rank == root;
    const std::vector<Bytes>& all = board_->Post(world_.rank, is_root ? message : nothing_);
    if (!is_root) message = all[static_cast<size_t>(root)];
  }

  std::vector<Bytes> AllGather(const Bytes& mine) override {
    return board_->Post(world_.rank, mine);
  }

  void Barrier() override { board_->Post(world_.rank, nothing_); }

 private:
  const World world_;
  const Bytes nothing_;
  const std::shared_ptr<Board> board_;
};

class HeapRegion final : public ShmRegion {
 public:
  explicit HeapRegion(std::shared_ptr<ShmArea[]> areas) : areas_(std::move(areas)) {}
  ShmArea& area(int rank) const override { return areas_[rank]; }
  [[noreturn]] void EndJob() override { std::abort(); }

 private:
  const std::shared_ptr<ShmArea[]> areas_;
};

}  // namespace

// Shared ownership, because the ranks end in any order and none of them outranks the others.
std::vector<ThreadRank> MakeThreadRanks(int size) {
  const auto board = std::make_shared<Board>(size);
  const auto areas = std::shared_ptr<ShmArea[]>(new ShmArea[static_cast<size_t>(size)]);
  std::vector<ThreadRank> ranks;
  for (int rank = 0; rank < size; ++rank) {
    const World world{rank, size, rank, size};
    ranks.push_back({std::make_unique<ThreadControl>(world, board),
                     MakeShmCommunicator(world, std::make_unique<HeapRegion>(areas))});
  }
  return ranks;
}

}  // namespace trine
