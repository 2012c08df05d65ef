#include "src/engine/job_plan.h"

#include <algorithm>
#include <map>

#include "src/engine/rank_loop.h"

namespace trine {
namespace {

Result<std::unique_ptr<Backend>> MakeDryBackend(const SessionOptions& options) {
  std::string error;
  std::unique_ptr<Backend> dry = MakeCpuBackend({.compute = options.compute, .dry = true}, &error);
  if (dry == nullptr) return BadInput(error);
  return dry;
}

SchedulerLimits MakeLimits(const SessionOptions& options, const ModelConfig& config) {
  SchedulerLimits limits;
  limits.made_for = config.context;
  limits.context =
      options.context == 0 ? config.context : std::min(options.context, config.context);
  limits.sequences = options.sequences;
  limits.step_tokens = std::clamp(options.step_tokens, options.sequences,
                                  std::max(options.sequences, options.sequences * limits.context));
  limits.pages = options.sequences * PagesFor(limits.context);
  limits.vocab = config.vocab;
  return limits;
}

// Of the bytes that a claim reads, those of rows or columns that another rank's claim of the tensor
// reads too.
int64_t SharedBytes(const Claim& mine, const Claim& other) {
  int64_t shared = 0;
  for (const Interval& a : mine.shard.parts) {
    for (const Interval& b : other.shard.parts) {
      shared += std::max<int64_t>(0, std::min(a.end, b.end) - std::max(a.begin, b.begin));
    }
  }
  const int64_t size = mine.shard.size();
  return size == 0 ? 0 : mine.bytes / size * shared;
}

// Bytes of each rank's claims that at least one other rank holds.
std::vector<int64_t> Replicated(const ModelPlan& plan) {
  std::map<const TensorInfo*, std::vector<std::pair<size_t, const Claim*>>> by_tensor;
  for (size_t rank = 0; rank < plan.claims.size(); ++rank) {
    for (const Claim& claim : plan.claims[rank]) {
      if (!claim.streamed) by_tensor[claim.tensor].emplace_back(rank, &claim);
    }
  }
  std::vector<int64_t> bytes(plan.claims.size(), 0);
  for (const auto& [tensor, claims] : by_tensor) {
    for (const auto& [rank, mine] : claims) {
      int64_t most = 0;
      for (const auto& [other_rank, other] : claims) {
        if (other_rank != rank) most = std::max(most, SharedBytes(*mine, *other));
      }
      bytes[rank] += most;
    }
  }
  return bytes;
}

}  // namespace

Result<JobPlan> PlanJob(const WeightStore& store, const SessionOptions& options, int ranks) {
  TRINE_ASSIGN(const std::unique_ptr<Backend> dry, MakeDryBackend(options));
  JobPlan plan;
  TRINE_ASSIGN(plan.model, PlanModel(store, ranks, options.split, *dry));
  plan.limits = MakeLimits(options, plan.model.config);
  plan.step = {plan.limits.step_tokens, std::max(options.logit_rows, plan.limits.sequences)};
  return plan;
}

int MostRanks(const JobPlan& plan) {
  return ShardPlan::MostRanks(plan.model.dims);
}

Result<std::vector<RankMemory>> PlanMemory(const WeightStore& store, const SessionOptions& options,
                                           const JobPlan& plan) {
  const ModelPlan& model_plan = plan.model;
  TRINE_ASSIGN(const std::unique_ptr<Backend> dry, MakeDryBackend(options));
  const std::unique_ptr<Communicator> comm = MakeSelfCommunicator();
  RankContext context{*dry, *comm, plan.step, options.kv_type};
  const std::vector<int64_t> replicated = Replicated(model_plan);
  const std::vector<uint8_t> drawable(static_cast<size_t>(model_plan.config.vocab), 1);
  const ExecutorLimits limits{plan.step, plan.limits.sequences, plan.limits.pages};
  std::vector<RankMemory> ranks;
  for (int rank = 0; rank < model_plan.ranks(); ++rank) {
    const auto r = static_cast<size_t>(rank);
    const int64_t before = dry->allocated();
    TRINE_ASSIGN(const std::unique_ptr<Model> model,
                 LoadModel(store, model_plan, rank, context, {}));
    const RankExecutor executor(*model, context, {}, drawable, limits);
    RankMemory memory;
    memory.weights = LoadedBytes(model_plan.claims[r]);
    memory.replicated = replicated[r];
    for (const Claim& claim : model_plan.claims[r]) memory.resident += claim.resident;
    memory.kv = executor.kv_bytes();
    memory.state = executor.state_bytes();
    memory.workspace = dry->allocated() - before - memory.resident - memory.kv - memory.state;
    memory.comm = SharedBytesPerRank(model_plan.ranks());
    ranks.push_back(memory);
  }
  return ranks;
}

}  // namespace trine
