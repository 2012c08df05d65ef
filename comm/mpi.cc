// The only file that includes MPI's header. Long waits are done by polling (waiter.h): a blocking
// MPI call spins on a full core, even with mpi_yield_when_idle.
#include "comm/mpi.h"

#include <mpi.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "comm/parts.h"
#include "comm/progress.h"
#include "comm/reason.h"
#include "comm/shm.h"
#include "comm/waiter.h"

namespace trine {
namespace {

// The longest single message: far below MPI's limit of INT_MAX, and small enough that tests cross
// it.
constexpr int64_t kPieceBytes = int64_t{4} << 20;

constexpr std::chrono::microseconds kControlSleep{500};  // an idle worker waits here
constexpr std::chrono::microseconds kDataSleep{50};      // within a layer

[[noreturn]] void EndJob() {
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();  // MPI_Abort is not declared noreturn
}

// Of the whole job, so without the local ranks; makes no call that waits for others.
World JobWorld() {
  World world;
  MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world.size);
  return world;
}

[[noreturn]] void Fail(std::string_view reason) {
  PrintReason(JobWorld(), reason);
  EndJob();
}

void Check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  Fail(std::string(call) + ": " + text);
}

// Ends with the request that `code` and `call` started.
void Wait(int code, const char* call, MPI_Request* request) {
  Check(code, call);
  Waiter waiter(kControlSleep, kSomeRank);
  for (int done = 0;;) {
    Check(MPI_Test(request, &done, MPI_STATUS_IGNORE), call);
    if (done != 0) return OwnProgress().Move();
    waiter.Pause();
  }
}

// For the length of a blocking call that needs the other ranks: this one does not stand still.
class WaitingForOthers {
 public:
  WaitingForOthers() { OwnProgress().WaitFor(kSomeRank); }
  ~WaitingForOthers() {
    OwnProgress().WaitFor(kNobody);
    OwnProgress().Move();
  }
  WaitingForOthers(const WaitingForOthers&) = delete;
  WaitingForOthers& operator=(const WaitingForOthers&) = delete;
};

// A copy of MPI_COMM_WORLD, so that the messages of two owners cannot meet. Making and destroying
// one are collective.
class OwnComm {
 public:
  OwnComm() {
    const WaitingForOthers waiting;
    Check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
  }
  ~OwnComm() {
    const WaitingForOthers waiting;
    Check(MPI_Comm_free(&comm_), "MPI_Comm_free");
  }
  OwnComm(const OwnComm&) = delete;
  OwnComm& operator=(const OwnComm&) = delete;

  MPI_Comm get() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

class MpiControl final : public ControlChannel {
 public:
  explicit MpiControl(const World& world) : world_(world) {}

  const World& world() const override { return world_; }

  void Broadcast(Bytes& message, int root) override {
    Head head;
    const bool is_root = world_.rank == root;
    if (is_root) {
      head.bytes = static_cast<int64_t>(message.size());
      std::copy_n(message.begin(), HeadPart(head.bytes), head.payload.begin());
    }
    BroadcastBytes(&head, sizeof head, root);
    const auto in_head = HeadPart(head.bytes);
    if (!is_root) {
      message.resize(static_cast<size_t>(head.bytes));
      std::copy_n(head.payload.begin(), in_head, message.begin());
    }
    BroadcastBytes(message.data() + in_head, head.bytes - in_head, root);
  }

  std::vector<Bytes> AllGather(const Bytes& mine) override {
    const auto my_bytes = static_cast<int64_t>(mine.size());
    std::vector<int64_t> bytes(static_cast<size_t>(world_.size));
    MPI_Request request;
    Wait(MPI_Iallgather(&my_bytes, 1, MPI_INT64_T, bytes.data(), 1, MPI_INT64_T, comm_.get(),
                        &request),
         "MPI_Iallgather", &request);

    std::vector<Bytes> all(static_cast<size_t>(world_.size));
    for (int rank = 0; rank < world_.size; ++rank) {
      const auto r = static_cast<size_t>(rank);
      if (rank == world_.rank) {
        all[r] = mine;
      } else {
        all[r].resize(static_cast<size_t>(bytes[r]));
      }
      BroadcastBytes(all[r].data(), bytes[r], rank);
    }
    return all;
  }

  void Barrier() override {
    MPI_Request request;
    Wait(MPI_Ibarrier(comm_.get(), &request), "MPI_Ibarrier", &request);
  }

 private:
  // Of a fixed size, since the receivers do not know the length yet.
  struct Head {
    int64_t bytes = 0;
    std::array<std::byte, 4096 - sizeof(int64_t)> payload{};
  };
  static_assert(sizeof(Head) == 4096);

  static std::ptrdiff_t HeadPart(int64_t bytes) {
    return std::min<int64_t>(bytes, sizeof(Head::payload));
  }

  void BroadcastBytes(void* data, int64_t bytes, int root) {
    auto* from = static_cast<std::byte*>(data);
    for (int64_t begin = 0; begin < bytes; begin += kPieceBytes) {
      const auto piece = static_cast<int>(std::min(bytes - begin, kPieceBytes));
      MPI_Request request;
      Wait(MPI_Ibcast(from + begin, piece, MPI_BYTE, root, comm_.get(), &request), "MPI_Ibcast",
           &request);
    }
  }

  const World world_;
  const OwnComm comm_;
};

// Every rank talks to every other one directly. MPI's reductions add in an order of their own, so
// they serve for integers only.
class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(const World& world)
      : world_(world),
        parts_(static_cast<size_t>(world.size)),
        slices_(static_cast<size_t>(world.size)) {}

  const World& world() const override { return world_; }
  std::string_view name() const override { return "mpi"; }

  void AllReduceSum(void* data, int64_t count, Element type) override;
  void AllGather(const void* mine, void* all, std::span<const int64_t> counts,
                 Element type) override;
  void ReduceScatterSum(void* all, void* mine, std::span<const int64_t> counts,
                        Element type) override;

  [[noreturn]] void Abort(std::string_view reason) override {
    PrintReason(world_, reason);
    EndJob();
  }

 private:
  void Receive(std::byte* to, int64_t bytes, int rank);
  void Send(const std::byte* from, int64_t bytes, int rank);
  void Finish();  // waits for everything posted

  // Posts the receipt of `bytes` from every other rank, and leaves in parts_ where they will be.
  // This rank's own part is `mine`.
  void ReceiveParts(const std::byte* mine, int64_t bytes);

  const World world_;
  const OwnComm comm_;
  std::vector<MPI_Request> requests_;
  std::vector<std::byte> scratch_;       // the parts of the other ranks
  std::vector<const std::byte*> parts_;  // one per rank
  std::vector<int64_t> slices_;          // scratch, one per rank
};

void MpiCommunicator::Receive(std::byte* to, int64_t bytes, int rank) {
  for (int64_t begin = 0; begin < bytes; begin += kPieceBytes) {
    const auto piece = static_cast<int>(std::min(bytes - begin, kPieceBytes));
    Check(MPI_Irecv(to + begin, piece, MPI_BYTE, rank, /*tag=*/0, comm_.get(),
                    &requests_.emplace_back()),
          "MPI_Irecv");
  }
}

void MpiCommunicator::Send(const std::byte* from, int64_t bytes, int rank) {
  for (int64_t begin = 0; begin < bytes; begin += kPieceBytes) {
    const auto piece = static_cast<int>(std::min(bytes - begin, kPieceBytes));
    Check(MPI_Isend(from + begin, piece, MPI_BYTE, rank, /*tag=*/0, comm_.get(),
                    &requests_.emplace_back()),
          "MPI_Isend");
  }
}

void MpiCommunicator::Finish() {
  Waiter waiter(kDataSleep, kSomeRank);
  for (int done = 0;;) {
    Check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done,
                      MPI_STATUSES_IGNORE),
          "MPI_Testall");
    if (done != 0) break;
    waiter.Pause();
  }
  requests_.clear();
  OwnProgress().Move();
}

void MpiCommunicator::ReceiveParts(const std::byte* mine, int64_t bytes) {
  const auto needed = static_cast<size_t>(bytes * (world_.size - 1));
  if (scratch_.size() < needed) scratch_.resize(needed);
  std::byte* to = scratch_.data();
  for (int rank = 0; rank < world_.size; ++rank) {
    if (rank == world_.rank) {
      parts_[static_cast<size_t>(rank)] = mine;
      continue;
    }
    parts_[static_cast<size_t>(rank)] = to;
    Receive(to, bytes, rank);
    to += bytes;
  }
}

void MpiCommunicator::AllReduceSum(void* data, int64_t count, Element type) {
  if (type == Element::kByte) Abort("AllReduceSum: bytes are not summable");
  auto* bytes = static_cast<std::byte*>(data);
  if (type == Element::kInt64) {
    constexpr int64_t kPiece = kPieceBytes / int64_t{sizeof(int64_t)};
    const WaitingForOthers waiting;
    for (int64_t begin = 0; begin < count; begin += kPiece) {
      // Unsigned, so that it wraps. Blocking, as Open MPI's MPI_Iallreduce is slower.
      Check(MPI_Allreduce(MPI_IN_PLACE, bytes + begin * int64_t{sizeof(int64_t)},
                          static_cast<int>(std::min(count - begin, kPiece)), MPI_UINT64_T, MPI_SUM,
                          comm_.get()),
            "MPI_Allreduce");
    }
    return;
  }
  SplitEvenly(count, slices_);
  std::byte* mine = bytes + OffsetOf(slices_, world_.rank) * ElementBytes(type);
  ReduceScatterSum(bytes, mine, slices_, type);
  AllGather(mine, bytes, slices_, type);
}

void MpiCommunicator::AllGather(const void* mine, void* all, std::span<const int64_t> counts,
                                Element type) {
  const int64_t width = ElementBytes(type);
  const int64_t my_bytes = counts[static_cast<size_t>(world_.rank)] * width;
  const auto* from = static_cast<const std::byte*>(mine);
  auto* place = static_cast<std::byte*>(all);
  for (int rank = 0; rank < world_.size; ++rank) {
    const int64_t bytes = counts[static_cast<size_t>(rank)] * width;
    if (rank != world_.rank) {
      Receive(place, bytes, rank);
    } else if (bytes > 0 && place != from) {
      std::memcpy(place, from, static_cast<size_t>(bytes));
    }
    place += bytes;
  }
  for (int rank = 0; rank < world_.size; ++rank) {
    if (rank != world_.rank) Send(from, my_bytes, rank);
  }
  Finish();
}

void MpiCommunicator::ReduceScatterSum(void* all, void* mine, std::span<const int64_t> counts,
                                       Element type) {
  if (type == Element::kByte) Abort("ReduceScatterSum: bytes are not summable");
  const int64_t width = ElementBytes(type);
  const int64_t my_count = counts[static_cast<size_t>(world_.rank)];
  auto* place = static_cast<std::byte*>(all);

  // The sum is made in place and moved, since `mine` may lie across this rank's part.
  std::byte* my_place = place + OffsetOf(counts, world_.rank) * width;
  ReceiveParts(my_place, my_count * width);
  for (int rank = 0; rank < world_.size; ++rank) {
    const int64_t bytes = counts[static_cast<size_t>(rank)] * width;
    if (rank != world_.rank) Send(place, bytes, rank);
    place += bytes;
  }
  Finish();
  SumInRankOrder(parts_, my_count, type, my_place);
  if (my_count > 0) std::memmove(mine, my_place, static_cast<size_t>(my_count * width));
}

// The areas of shm.h in an MPI-3 shared window: every rank's own memory, mapped by all.
class WindowRegion final : public ShmRegion {
 public:
  explicit WindowRegion(const World& world) : areas_(static_cast<size_t>(world.size)) {
    const WaitingForOthers waiting;
    MPI_Info info;
    Check(MPI_Info_create(&info), "MPI_Info_create");
    // Pages of their own, so that each rank's lie in its own NUMA node.
    Check(MPI_Info_set(info, "alloc_shared_noncontig", "true"), "MPI_Info_set");
    void* base = nullptr;
    Check(MPI_Win_allocate_shared(kAreaBytes, 1, info, comm_.get(), &base, &window_),
          "MPI_Win_allocate_shared");
    Check(MPI_Info_free(&info), "MPI_Info_free");
    Check(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN), "MPI_Win_set_errhandler");

    for (int rank = 0; rank < world.size; ++rank) {
      MPI_Aint bytes = 0;
      int unit = 0;
      Check(MPI_Win_shared_query(window_, rank, &bytes, &unit, &base), "MPI_Win_shared_query");
      areas_[static_cast<size_t>(rank)] = Aligned(base);
    }
    new (areas_[static_cast<size_t>(world.rank)]) ShmArea;
    Check(MPI_Win_lock_all(MPI_MODE_NOCHECK, window_), "MPI_Win_lock_all");
    Check(MPI_Win_sync(window_), "MPI_Win_sync");
    Check(MPI_Barrier(comm_.get()), "MPI_Barrier");  // no rank reads an area before it is made
    Check(MPI_Win_sync(window_), "MPI_Win_sync");
  }

  ~WindowRegion() override {
    const WaitingForOthers waiting;
    Check(MPI_Win_unlock_all(window_), "MPI_Win_unlock_all");
    Check(MPI_Win_free(&window_), "MPI_Win_free");
  }

  WindowRegion(const WindowRegion&) = delete;
  WindowRegion& operator=(const WindowRegion&) = delete;

  ShmArea& area(int rank) const override { return *areas_[static_cast<size_t>(rank)]; }

  [[noreturn]] void EndJob() override { trine::EndJob(); }

 private:
  // MPI promises no alignment.
  static constexpr MPI_Aint kAreaBytes = sizeof(ShmArea) + alignof(ShmArea);

  // All ranks find the same place, since mappings differ by whole pages.
  static ShmArea* Aligned(void* base) {
    size_t space = static_cast<size_t>(kAreaBytes);
    return static_cast<ShmArea*>(std::align(alignof(ShmArea), sizeof(ShmArea), base, space));
  }

  const OwnComm comm_;
  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<ShmArea*> areas_;
};

// The kernel kills this process when its parent ends. A parent that ended before this call is seen
// by its changed id; comparing with 1 would be wrong in a container whose first process is mpirun.
void DieWithParent() {
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) std::_Exit(1);
}

}  // namespace

bool LaunchedByMpi() {
  const auto is_set = [](const char* name) { return std::getenv(name) != nullptr; };
  // A batch script has SLURM_PROCID as well, but only srun sets the tasks of a step.
  return is_set("OMPI_COMM_WORLD_RANK") || is_set("PMIX_RANK") || is_set("PMI_RANK") ||
         (is_set("SLURM_PROCID") && is_set("SLURM_STEP_NUM_TASKS"));
}

std::string MpiLibrary() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int size = 0;
  MPI_Get_library_version(text.data(), &size);  // the one call that is good before MPI_Init
  const std::string_view whole(text.data(), static_cast<size_t>(size));
  return std::string(whole.substr(0, whole.find_first_of(",\n")));
}

MpiJob::MpiJob(int* argc, char*** argv) {
  DieWithParent();
  int level = MPI_THREAD_SINGLE;
  Check(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread");
  if (level < MPI_THREAD_FUNNELED) {
    Fail("MPI_Init_thread: this MPI has no MPI_THREAD_FUNNELED; use one built with threads");
  }
  // Communicators made from this one inherit the handler.
  Check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");

  world_ = JobWorld();
  MPI_Comm host;
  Check(
      MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, world_.rank, MPI_INFO_NULL, &host),
      "MPI_Comm_split_type");
  Check(MPI_Comm_rank(host, &world_.local_rank), "MPI_Comm_rank");
  Check(MPI_Comm_size(host, &world_.local_size), "MPI_Comm_size");
  Check(MPI_Comm_free(&host), "MPI_Comm_free");
}

MpiJob::~MpiJob() {
  const WaitingForOthers waiting;
  Check(MPI_Finalize(), "MPI_Finalize");
}

World MpiJob::world() const {
  return world_;
}

bool MpiJob::one_host() const {
  return world_.local_size == world_.size;
}

std::unique_ptr<ControlChannel> MpiJob::MakeControl() const {
  return std::make_unique<MpiControl>(world_);
}

std::unique_ptr<Communicator> MpiJob::MakeMpiCommunicator() const {
  return std::make_unique<MpiCommunicator>(world_);
}

std::unique_ptr<Communicator> MpiJob::MakeShmCommunicator() const {
  if (!one_host()) {
    Fail("shm: " + std::to_string(world_.local_size) + " of " + std::to_string(world_.size) +
         " ranks are on this host, and it needs all of them; use the mpi backend");
  }
  return trine::MakeShmCommunicator(world_, std::make_unique<WindowRegion>(world_));
}

}  // namespace trine
