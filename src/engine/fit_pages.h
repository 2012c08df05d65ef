// How many pages of the KV cache fit into the memory that the ranks have beside their weights,
// states and buffers. Page ids mean the same on every rank, so all ranks have as many pages as the
// one that has the least room. Pure arithmetic: a job and `trine plan` come to the same, and so do
// all ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/core/result.h"
#include "src/engine/job_plan.h"

namespace trine {

// What a rank holds if the cache has plan.limits.pages pages, and the bytes that it may hold.
// Travels between ranks as it lies in memory.
struct RankRoom {
  RankMemory memory;
  int64_t available = 0;
};

// By rank; available: the bytes that each may hold.
Result<std::vector<RankRoom>> PlanRooms(const WeightStore& store, const SessionOptions& options,
                                        const JobPlan& plan, std::span<const int64_t> available);

// The pages that fit on every rank, within options.kv_memory if that is given, however many the job
// may use; 0: none.
int64_t PagesThatFit(std::span<const RankRoom> ranks, const SessionOptions& options,
                     const JobPlan& plan);

// The pages that the job takes: those that fit, up to plan.limits.pages. Errors name both numbers
// and the remedy: one sequence of the context does not fit, or options.kv_memory does not.
Result<int64_t> FitPages(std::span<const RankRoom> ranks, const SessionOptions& options,
                         const JobPlan& plan);

// The most sequences that options may ask for.
inline constexpr int64_t kMostSequences = 4096;

// What options could ask for instead, with `available` bytes on each rank: the longest context of a
// single sequence, with room for the states of all; or the most sequences of options.context tokens
// that are at once in the cache in full. 0: none.
Result<int64_t> MostContext(const WeightStore& store, SessionOptions options,
                            std::span<const int64_t> available);
Result<int64_t> MostSequences(const WeightStore& store, const SessionOptions& options,
                              std::span<const int64_t> available);

}  // namespace trine
