// GoogleTest as one rank of an MPI job. Every rank runs the same tests in the same order; a failure
// on any rank fails the run on all, and only rank 0 reports progress.
//
// Tests use EXPECT only: a rank that left early would leave the others waiting.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "comm/control.h"
#include "comm/mpi.h"

namespace trine {

// A global, since GoogleTest makes the tests itself. Set while tests run.
inline std::optional<MpiJob> test_job;

// What a rank says that reports no progress: its failures.
class FailurePrinter final : public testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}

  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "[rank %d] %s:%d: %s\n", rank_, result.file_name(), result.line_number(),
                 result.message());
  }

 private:
  const int rank_;
};

inline int RunMpiTests(int argc, char** argv) {
  test_job.emplace(&argc, &argv);
  testing::InitGoogleTest(&argc, argv);
  const int rank = test_job->world().rank;
  if (rank != 0) {
    testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter(rank));
  }
  const Bytes mine = {static_cast<std::byte>(RUN_ALL_TESTS() == 0 ? 0 : 1)};
  const std::vector<Bytes> all = test_job->MakeControl()->AllGather(mine);
  test_job.reset();
  const bool passed = std::all_of(all.begin(), all.end(),
                                  [&](const Bytes& result) { return result[0] == std::byte{0}; });
  if (!passed && rank == 0) std::fprintf(stderr, "some ranks failed\n");
  return passed ? 0 : 1;
}

}  // namespace trine
