// A collective is a series of steps. In a step every rank fills a slot of its own, publishes the
// step, waits until every rank has published it and reads the slots of the others.
//
// Steps use the two slots in turn, and that spares a second barrier. A rank that fills a slot in
// step s has seen every rank publish step s - 1, which a rank does only after it has read all it
// needs of step s - 2, the last step that used the same slot. Every step of every collective is
// published by every rank, even by one that has nothing to say in it.
#include "comm/shm.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "comm/parts.h"
#include "comm/reason.h"
#include "comm/waiter.h"

namespace trine {
namespace {

// Above this, slices pay: a rank then reads the payload about twice and not once per rank, for one
// more step. Anything from 8 to 64 KiB measures alike.
constexpr int64_t kOneShotBytes = 32 * 1024;

// Small: this wait lies within a layer.
constexpr std::chrono::microseconds kLongestSleep{50};

class ShmCommunicator final : public Communicator {
 public:
  ShmCommunicator(const World& world, std::unique_ptr<ShmRegion> region)
      : world_(world),
        region_(std::move(region)),
        parts_(static_cast<size_t>(world.size)),
        slices_(static_cast<size_t>(world.size)) {}

  const World& world() const override { return world_; }
  std::string_view name() const override { return "shm"; }

  void AllReduceSum(void* data, int64_t count, Element type) override;
  void AllGather(const void* mine, void* all, std::span<const int64_t> counts,
                 Element type) override;
  void ReduceScatterSum(void* all, void* mine, std::span<const int64_t> counts,
                        Element type) override;

  [[noreturn]] void Abort(std::string_view reason) override {
    PrintReason(world_, reason);
    region_->EndJob();
    std::abort();  // gcc forgets noreturn on virtual functions
  }

 private:
  void AllReduceInOneShot(std::byte* data, int64_t count, Element type);

  std::byte* Slot(int rank) const { return region_->area(rank).slots[step_ % 2]; }

  void BeginStep() { ++step_; }

  // After it, the slots of all ranks hold this step's data until this rank begins the next step.
  void Exchange() {
    region_->area(world_.rank).step.store(step_, std::memory_order_release);
    for (int rank = 0; rank < world_.size; ++rank) {
      const std::atomic<uint64_t>& theirs = region_->area(rank).step;
      Waiter waiter(kLongestSleep, rank);
      while (theirs.load(std::memory_order_acquire) < step_) waiter.Pause();
    }
    OwnProgress().Move();
  }

  const World world_;
  const std::unique_ptr<ShmRegion> region_;
  uint64_t step_ = 0;
  std::vector<const std::byte*> parts_;  // scratch, one per rank
  std::vector<int64_t> slices_;          // scratch, one per rank
};

void Copy(const std::byte* from, int64_t bytes, std::byte* to) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

// The length of piece [begin, begin + longest) of something that is `bytes` long.
int64_t PieceBytes(int64_t bytes, int64_t begin, int64_t longest) {
  return std::clamp<int64_t>(bytes - begin, 0, longest);
}

void ShmCommunicator::AllReduceSum(void* data, int64_t count, Element type) {
  if (type == Element::kByte) Abort("AllReduceSum: bytes are not summable");
  auto* bytes = static_cast<std::byte*>(data);
  if (count * ElementBytes(type) <= kOneShotBytes) {
    AllReduceInOneShot(bytes, count, type);
    return;
  }
  SplitEvenly(count, slices_);
  std::byte* mine = bytes + OffsetOf(slices_, world_.rank) * ElementBytes(type);
  ReduceScatterSum(bytes, mine, slices_, type);
  AllGather(mine, bytes, slices_, type);
}

void ShmCommunicator::AllReduceInOneShot(std::byte* data, int64_t count, Element type) {
  const int64_t total = count * ElementBytes(type);
  for (int64_t begin = 0; begin < total; begin += kSlotBytes) {
    const int64_t piece = PieceBytes(total, begin, kSlotBytes);
    BeginStep();
    Copy(data + begin, piece, Slot(world_.rank));
    Exchange();
    for (int rank = 0; rank < world_.size; ++rank) parts_[static_cast<size_t>(rank)] = Slot(rank);
    SumInRankOrder(parts_, piece / ElementBytes(type), type, data + begin);
  }
}

void ShmCommunicator::AllGather(const void* mine, void* all, std::span<const int64_t> counts,
                                Element type) {
  const int64_t width = ElementBytes(type);
  const int64_t my_bytes = counts[static_cast<size_t>(world_.rank)] * width;
  const int64_t longest = *std::max_element(counts.begin(), counts.end()) * width;
  const auto* from = static_cast<const std::byte*>(mine);
  auto* to = static_cast<std::byte*>(all);

  std::byte* my_place = to + OffsetOf(counts, world_.rank) * width;
  if (from != my_place) Copy(from, my_bytes, my_place);
  for (int64_t begin = 0; begin < longest; begin += kSlotBytes) {
    BeginStep();
    Copy(from + begin, PieceBytes(my_bytes, begin, kSlotBytes), Slot(world_.rank));
    Exchange();
    std::byte* place = to + begin;
    for (int rank = 0; rank < world_.size; ++rank) {
      const int64_t bytes = counts[static_cast<size_t>(rank)] * width;
      if (rank != world_.rank) Copy(Slot(rank), PieceBytes(bytes, begin, kSlotBytes), place);
      place += bytes;
    }
  }
}

// A slot holds one lane per rank: the piece of that rank's part which it sums in this step.
void ShmCommunicator::ReduceScatterSum(void* all, void* mine, std::span<const int64_t> counts,
                                       Element type) {
  if (type == Element::kByte) Abort("ReduceScatterSum: bytes are not summable");
  const int64_t width = ElementBytes(type);
  const int64_t lane = kSlotBytes / world_.size / int64_t{kLineBytes} * int64_t{kLineBytes};
  const int64_t my_bytes = counts[static_cast<size_t>(world_.rank)] * width;
  const int64_t longest = *std::max_element(counts.begin(), counts.end()) * width;
  auto* from = static_cast<std::byte*>(all);

  // The sum is made in place, since `mine` may lie over a part that is still to be read.
  std::byte* my_place = from + OffsetOf(counts, world_.rank) * width;
  for (int64_t begin = 0; begin < longest; begin += lane) {
    BeginStep();
    const std::byte* place = from + begin;
    for (int rank = 0; rank < world_.size; ++rank) {
      const int64_t bytes = counts[static_cast<size_t>(rank)] * width;
      const int64_t piece = PieceBytes(bytes, begin, lane);
      if (rank != world_.rank) Copy(place, piece, Slot(world_.rank) + rank * lane);
      place += bytes;
    }
    Exchange();
    for (int rank = 0; rank < world_.size; ++rank) {
      parts_[static_cast<size_t>(rank)] = Slot(rank) + world_.rank * lane;
    }
    parts_[static_cast<size_t>(world_.rank)] = my_place + begin;
    SumInRankOrder(parts_, PieceBytes(my_bytes, begin, lane) / width, type, my_place + begin);
  }
  if (my_bytes > 0) std::memmove(mine, my_place, static_cast<size_t>(my_bytes));
}

}  // namespace

int64_t SharedBytesPerRank(int ranks) {
  return ranks == 1 ? 0 : static_cast<int64_t>(sizeof(ShmArea));
}

std::unique_ptr<Communicator> MakeShmCommunicator(const World& world,
                                                  std::unique_ptr<ShmRegion> region) {
  return std::make_unique<ShmCommunicator>(world, std::move(region));
}

}  // namespace trine
