// TimedCommunicator: stands before a communicator, forwards every call and notes when this rank
// entered and left each collective. From the notes of all ranks follows what was communication and
// what was waiting for a slower rank. Only the benchmark uses it.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "comm/communicator.h"

namespace trine {

// Nanoseconds of the host's monotonic clock, so ranks of one host can be compared.
struct CollectiveNote {
  int64_t entry = 0, exit = 0;
};

class TimedCommunicator final : public Communicator {
 public:
  explicit TimedCommunicator(Communicator& inner) : inner_(inner) {}

  const std::vector<CollectiveNote>& notes() const { return notes_; }
  // Forgets the notes and has memory for so many.
  void Clear(size_t notes) {
    notes_.clear();
    notes_.reserve(notes);
  }

  const World& world() const override { return inner_.world(); }
  std::string_view name() const override { return inner_.name(); }
  void AllReduceSum(void* data, int64_t count, Element type) override {
    const int64_t entry = Now();
    inner_.AllReduceSum(data, count, type);
    notes_.push_back({entry, Now()});
  }
  void AllGather(const void* mine, void* all, std::span<const int64_t> counts,
                 Element type) override {
    const int64_t entry = Now();
    inner_.AllGather(mine, all, counts, type);
    notes_.push_back({entry, Now()});
  }
  void ReduceScatterSum(void* all, void* mine, std::span<const int64_t> counts,
                        Element type) override {
    const int64_t entry = Now();
    inner_.ReduceScatterSum(all, mine, counts, type);
    notes_.push_back({entry, Now()});
  }
  [[noreturn]] void Abort(std::string_view reason) override {
    inner_.Abort(reason);
    std::abort();  // gcc forgets noreturn on virtual functions
  }

 private:
  static int64_t Now() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  Communicator& inner_;
  std::vector<CollectiveNote> notes_;
};

// Nanoseconds in collectives, mean over ranks.
struct CollectiveTimes {
  double comm = 0;  // after the last rank had entered
  double wait = 0;  // before that
};

// notes: by rank, the same collectives in the same order. Times are told apart by the clocks of
// all ranks; the sum of both needs only each rank's own.
CollectiveTimes SplitCollectives(const std::vector<std::vector<CollectiveNote>>& notes);

}  // namespace trine
