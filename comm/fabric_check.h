// The fabric check: real collectives over one path, with data that every rank knows, before
// anything depends on it. Every element of every result is compared on every rank, the time is
// taken, and the ranks vote: the worst that any of them saw is what all of them report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/control.h"

namespace trine {

enum class FabricOp : int32_t { kAllReduceInt64, kAllReduceFloat32, kAllGather, kReduceScatter };
inline constexpr int kFabricOps = 4;

// "all-reduce int64", "all-reduce f32", "all-gather" (bytes, uneven parts), "reduce-scatter"
// (int64, uneven parts).
const char* FabricOpName(FabricOp op);

// From good to bad. Slow: right, but even the fastest round takes longer than 1 ms and the time at
// 0.1 GB/s.
enum class FabricVerdict : int32_t { kOk, kSlow, kWrong };
const char* FabricVerdictName(FabricVerdict verdict);  // "ok", "slow", "wrong"

struct FabricTest {
  FabricOp op = FabricOp::kAllReduceInt64;
  int64_t bytes = 0;        // of the whole: what is reduced, gathered or scattered
  double microseconds = 0;  // median of the rounds, on the slowest rank
  FabricVerdict verdict = FabricVerdict::kOk;
  std::string reason;  // of what is not ok: one clause with all that is known

  double gb_per_second() const { return static_cast<double>(bytes) / microseconds / 1e3; }
};

struct FabricReport {
  std::string path;               // the communicator's name
  std::vector<FabricTest> tests;  // by size, then by operation
  double milliseconds = 0;        // that the check took this rank

  const FabricTest& worst() const;  // the first one with the worst verdict

  // "shm ok in 14 ms, all-reduce of 16 KB in 12 us, 1 MB at 9.1 GB/s", and why it is not ok.
  std::string Line() const;
};

// Sizes from 1 KB to `largest` bytes, each `factor` times the one before.
struct FabricScope {
  int64_t largest;
  int64_t factor;
  int rounds;  // of each operation at each size; odd
};
inline constexpr FabricScope kStartUpScope = {int64_t{1} << 20, 4, 3};  // some milliseconds
inline constexpr FabricScope kFullScope = {int64_t{32} << 20, 2, 5};    // some seconds

// Collective; the same report on every rank, but for its milliseconds. Takes four times `largest` of
// memory while it runs. Enters the phase `fabric`, whose deadline holds for each collective: a path
// that hangs is the watchdog's.
FabricReport CheckFabric(Communicator& comm, ControlChannel& control, const FabricScope& scope);

// "1 KB", "32 MB": powers of 1024.
std::string FabricSizeText(int64_t bytes);

}  // namespace trine
