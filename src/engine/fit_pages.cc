#include "src/engine/fit_pages.h"

#include <algorithm>
#include <limits>
#include <string>

#include "src/core/memory.h"

namespace trine {
namespace {

int64_t Fixed(const RankRoom& rank) {
  return rank.memory.total() - rank.memory.kv;
}

int64_t PageBytes(const RankRoom& rank, const JobPlan& plan) {
  return rank.memory.kv / plan.limits.pages;
}

// Pages that `bytes` hold on a rank, no more than there are ids for. A model without attention has
// pages of no bytes.
int64_t PagesIn(int64_t bytes, const RankRoom& rank, const JobPlan& plan) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (bytes < 0) return 0;
  const int64_t page = PageBytes(rank, plan);
  return page == 0 ? kMost : std::min(bytes / page, kMost);
}

int64_t PagesOn(const RankRoom& rank, const SessionOptions& options, const JobPlan& plan) {
  const int64_t left = rank.available - Fixed(rank);
  const int64_t room = options.kv_memory > 0 ? std::min(left, options.kv_memory) : left;
  return PagesIn(room, rank, plan);
}

std::string Name(std::span<const RankRoom> ranks, size_t rank) {
  return ranks.size() == 1 ? "the model" : "rank " + std::to_string(rank);
}

// What makes a sequence's part of the cache small enough for `pages` pages.
std::string SmallerCache(int64_t pages, const SessionOptions& options) {
  if (pages == 0) return "";
  return "-c " + std::to_string(pages * kPageTokens) + " or less, " +
         (options.kv_type == KvType::kQ8_0 ? "" : "-ctk q8_0, ");
}

std::string MoreMemory(const SessionOptions& options) {
  return std::string(options.sequences > 1 ? "fewer sequences at once, " : "") +
         "ranks on more hosts or a larger --memory-fraction";
}

// options.kv_memory was asked for, so what the job would take of it must fit.
Status CheckKvMemory(std::span<const RankRoom> ranks, const SessionOptions& options,
                     const JobPlan& plan) {
  if (options.kv_memory == 0) return {};
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankRoom& room = ranks[rank];
    const int64_t pages = std::min(PagesIn(options.kv_memory, room, plan), plan.limits.pages);
    const int64_t taken = pages * PageBytes(room, plan);
    if (taken <= room.available - Fixed(room)) continue;
    return BadInput("with --kv-memory " + MemoryText(options.kv_memory) + " " + Name(ranks, rank) +
                    " needs " + MemoryText(Fixed(room) + taken) + " (" + MemoryText(Fixed(room)) +
                    " beside the KV cache) of the " + MemoryText(room.available) +
                    " that it may take; use a smaller one, " + MoreMemory(options));
  }
  return {};
}

// One sequence needs more pages than the `pages` that fit on `rank`, fewer than on any other.
Status TooLong(std::span<const RankRoom> ranks, size_t rank, int64_t pages,
               const SessionOptions& options, const JobPlan& plan) {
  const RankRoom& room = ranks[rank];
  const int64_t needed = PagesFor(plan.limits.context) * PageBytes(room, plan);
  const std::string context = "a context of " + std::to_string(plan.limits.context) + " tokens";
  if (options.kv_memory > 0) {  // which fits, as has been checked
    const int64_t kilobytes = (needed + 999) / 1000;
    return BadInput(context + " needs " + MemoryText(needed) + " of KV cache, --kv-memory is " +
                    MemoryText(options.kv_memory) + "; use " + SmallerCache(pages, options) +
                    (pages > 0 ? "or " : "") + "--kv-memory " + std::to_string(kilobytes) + "KB");
  }
  const bool rest_fits = Fixed(room) <= room.available;
  return BadInput(Name(ranks, rank) + " needs " + MemoryText(Fixed(room) + needed) + " for " +
                  context + " (" + MemoryText(needed) + " of KV cache, " + MemoryText(Fixed(room)) +
                  " beside it) of the " + MemoryText(room.available) + " that it may take; use " +
                  (rest_fits ? SmallerCache(pages, options) : "") + MoreMemory(options));
}

}  // namespace

Result<std::vector<RankRoom>> PlanRooms(const WeightStore& store, const SessionOptions& options,
                                        const JobPlan& plan, std::span<const int64_t> available) {
  TRINE_ASSIGN(const std::vector<RankMemory> memories,
               PlanMemory(store, options, plan, {0, std::ssize(available)}));
  std::vector<RankRoom> rooms;
  for (size_t rank = 0; rank < memories.size(); ++rank) {
    rooms.push_back({memories[rank], available[rank]});
  }
  return rooms;
}

int64_t PagesThatFit(std::span<const RankRoom> ranks, const SessionOptions& options,
                     const JobPlan& plan) {
  int64_t pages = std::numeric_limits<int32_t>::max();
  for (const RankRoom& rank : ranks) pages = std::min(pages, PagesOn(rank, options, plan));
  return pages;
}

Result<int64_t> FitPages(std::span<const RankRoom> ranks, const SessionOptions& options,
                         const JobPlan& plan) {
  TRINE_RETURN_IF_ERROR(CheckKvMemory(ranks, options, plan));
  const auto least = std::ranges::min_element(
      ranks, {}, [&](const RankRoom& rank) { return PagesOn(rank, options, plan); });
  const int64_t pages = PagesOn(*least, options, plan);
  if (pages >= PagesFor(plan.limits.context)) return std::min(pages, plan.limits.pages);
  return TooLong(ranks, static_cast<size_t>(least - ranks.begin()), pages, options, plan);
}

Result<int64_t> MostContext(const WeightStore& store, SessionOptions options,
                            std::span<const int64_t> available) {
  options.context = 0;
  TRINE_ASSIGN(const JobPlan plan, PlanJob(store, options, static_cast<int>(available.size())));
  TRINE_ASSIGN(const std::vector<RankRoom> rooms, PlanRooms(store, options, plan, available));
  return std::min(PagesThatFit(rooms, options, plan) * kPageTokens, plan.limits.context);
}

Result<int64_t> MostSequences(const WeightStore& store, const SessionOptions& options,
                              std::span<const int64_t> available) {
  // Of the sequences in [fit, most] it is `fit` that are known to fit.
  int64_t fit = 0, most = kMostSequences;
  for (int64_t n = 1; fit < most; n = (fit + most + 1) / 2) {
    SessionOptions some = options;
    some.sequences = n;
    some.snapshots = options.snapshots / options.sequences * n;
    TRINE_ASSIGN(const JobPlan plan, PlanJob(store, some, static_cast<int>(available.size())));
    TRINE_ASSIGN(const std::vector<RankRoom> rooms, PlanRooms(store, some, plan, available));
    // More sequences than n leave no more room than this for each of them.
    const int64_t fitting = PagesThatFit(rooms, some, plan) / PagesFor(plan.limits.context);
    most = fitting < n ? n - 1 : std::min(most, fitting);
    fit = fitting < n ? fit : n;
  }
  return fit;
}

}  // namespace trine
