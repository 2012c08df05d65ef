// JobPlan: how a job will run a model, from headers alone: the shares of the ranks, the limits of
// the engine, and what every rank will hold in memory. Sessions begin with it; `trine plan` ends
// with it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "src/core/result.h"
#include "src/engine/rank_loop.h"
#include "src/engine/scheduler.h"
#include "src/models/model.h"

namespace trine {

struct SessionOptions {
  std::string model;  // path
  int threads = 1;    // of this rank
  Compute compute = Compute::kInteger;
  KvType kv_type = KvType::kF16;
  int64_t context = 4096;     // tokens of one sequence; 0: what the model was made for
  int64_t sequences = 1;      // at once
  int64_t drafts = 0;         // guessed tokens of a sequence in a step, at most
  int64_t step_tokens = 512;  // per step
  int64_t snapshots = 0;      // of a recurrent model's state, for the prefix cache
  // Bytes of this rank: for all that it holds, and of that for the KV cache. 0: what is left.
  int64_t memory = std::numeric_limits<int64_t>::max();
  int64_t kv_memory = 0;
  int64_t logit_rows = 0;     // per step; 0: those of a sequence's next token and its drafts
  int64_t logit_bytes = 0;    // or as many rows as these hold; rank 0 has up to three copies
  std::vector<double> split;  // weights of the ranks; empty: equal
  // What is to stand between the engine and its backend, e.g. to time it; empty: nothing.
  std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend>)> decorate;
};

struct JobPlan {
  ModelPlan model;
  SchedulerLimits limits;
  StepLimits step;
};

// With a KV cache for all sequences at once in full, whatever memory there is: see fit_pages.h.
// Errors name what is missing, wrong or unknown in the file, or the rank counts that work.
Result<JobPlan> PlanJob(const WeightStore& store, const SessionOptions& options, int ranks);

ExecutorLimits LimitsOf(const JobPlan& plan);

// The most ranks that can share a planned model; all counts up to it work.
int MostRanks(const JobPlan& plan);

// Bytes of one rank. Nothing is estimated: the model and the executor are built on a dry backend,
// and what they allocate there is counted.
struct RankMemory {
  int64_t weights = 0;     // of the file that this rank loads
  int64_t replicated = 0;  // of those, held by another rank too
  int64_t resident = 0;    // the same weights, as the backend keeps them
  int64_t kv = 0;
  int64_t state = 0;      // of recurrent layers
  int64_t workspace = 0;  // buffers of a step
  int64_t comm = 0;       // shared with other ranks
  int64_t total() const { return resident + kv + state + workspace + comm; }
};

// One entry for each of `ranks`.
Result<std::vector<RankMemory>> PlanMemory(const WeightStore& store, const SessionOptions& options,
                                           const JobPlan& plan, Interval ranks);

}  // namespace trine
