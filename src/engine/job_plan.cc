#include "src/engine/job_plan.h"

#include <algorithm>
#include <map>

namespace trine {
namespace {

Result<std::unique_ptr<Backend>> MakeDryBackend(const SessionOptions& options) {
  std::string error;
  std::unique_ptr<Backend> dry = MakeCpuBackend({.compute = options.compute, .dry = true}, &error);
  if (dry == nullptr) return BadInput(error);
  return dry;
}

// Of a step in which every sequence has its next token and as many drafts as it may.
int64_t DecodedTokens(const SchedulerLimits& limits) {
  return limits.sequences * (1 + limits.drafts);
}

SchedulerLimits MakeLimits(const SessionOptions& options, const ModelConfig& config) {
  SchedulerLimits limits;
  limits.made_for = config.context;
  limits.context =
      options.context == 0 ? config.context : std::min(options.context, config.context);
  limits.sequences = options.sequences;
  limits.drafts = options.drafts;
  const int64_t decoded = DecodedTokens(limits);
  limits.step_tokens = std::clamp(options.step_tokens, decoded,
                                  std::max(decoded, options.sequences * limits.context));
  limits.pages = options.sequences * PagesFor(limits.context);
  limits.vocab = config.vocab;
  limits.recurrent = config.recurrent_layers() > 0;
  limits.snapshots = limits.recurrent ? options.snapshots : 0;
  return limits;
}

// What a claim reads along its axis, in rows or in blocks of columns.
std::vector<Interval> Stored(const Claim& claim) {
  const int64_t unit = claim.shard.axis == Axis::kRows ? 1 : Info(claim.tensor->type).block_elems;
  std::vector<Interval> stored;
  for (const Interval& part : claim.shard.parts) {
    if (part.size() > 0) stored.push_back({part.begin / unit, (part.end + unit - 1) / unit});
  }
  return stored;
}

// The length of the union of intervals.
int64_t Length(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  int64_t total = 0, end = 0;
  for (const Interval& part : intervals) {
    total += std::max<int64_t>(0, part.end - std::max(part.begin, end));
    end = std::max(end, part.end);
  }
  return total;
}

// Of the bytes that a claim reads, those that any of the others reads too.
int64_t SharedBytes(const Claim& mine, const std::vector<const Claim*>& others) {
  std::vector<Interval> shared;
  for (const Interval& a : Stored(mine)) {
    for (const Claim* other : others) {
      for (const Interval& b : Stored(*other)) {
        const Interval both{std::max(a.begin, b.begin), std::min(a.end, b.end)};
        if (both.size() > 0) shared.push_back(both);
      }
    }
  }
  const int64_t all = Length(Stored(mine));
  return all == 0 ? 0 : mine.bytes / all * Length(shared);
}

// Bytes of each rank's claims that at least one other rank holds.
std::vector<int64_t> Replicated(const ModelPlan& plan) {
  std::map<const TensorInfo*, std::vector<const Claim*>> by_tensor;
  for (const auto& claims : plan.claims) {
    for (const Claim& claim : claims) {
      if (!claim.streamed) by_tensor[claim.tensor].push_back(&claim);
    }
  }
  std::vector<int64_t> bytes;
  for (const auto& claims : plan.claims) {
    bytes.push_back(0);
    for (const Claim& claim : claims) {
      if (claim.streamed) continue;
      std::vector<const Claim*> others = by_tensor[claim.tensor];
      others.erase(std::find(others.begin(), others.end(), &claim));
      bytes.back() += SharedBytes(claim, others);
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
  const int64_t row_bytes = plan.limits.vocab * static_cast<int64_t>(sizeof(float));
  const int64_t fitting = std::min(plan.limits.step_tokens, options.logit_bytes / row_bytes);
  plan.step = {plan.limits.step_tokens,
               std::max({options.logit_rows, fitting, DecodedTokens(plan.limits)})};
  plan.limits.logit_rows = plan.step.logit_rows;
  return plan;
}

ExecutorLimits LimitsOf(const JobPlan& plan) {
  return {plan.step,         plan.limits.sequences,         plan.limits.drafts,
          plan.limits.pages, PagesFor(plan.limits.context), plan.limits.snapshots};
}

int MostRanks(const JobPlan& plan) {
  return ShardPlan::MostRanks(plan.model.dims);
}

Result<std::vector<RankMemory>> PlanMemory(const WeightStore& store, const SessionOptions& options,
                                           const JobPlan& plan, Interval ranks) {
  const ModelPlan& model_plan = plan.model;
  TRINE_ASSIGN(const std::unique_ptr<Backend> dry, MakeDryBackend(options));
  const std::unique_ptr<Communicator> comm = MakeSelfCommunicator();
  RankContext context{*dry, *comm, plan.step, options.kv_type};
  const std::vector<int64_t> replicated = Replicated(model_plan);
  const std::vector<uint8_t> drawable(static_cast<size_t>(model_plan.config.vocab), 1);
  const ExecutorLimits limits = LimitsOf(plan);
  std::vector<RankMemory> memories;
  for (int64_t rank = ranks.begin; rank < ranks.end; ++rank) {
    const auto r = static_cast<size_t>(rank);
    const int64_t before = dry->allocated();
    TRINE_ASSIGN(const std::unique_ptr<Model> model,
                 LoadModel(store, model_plan, static_cast<int>(rank), context, {}));
    const RankExecutor executor(*model, context, {}, drawable, limits);
    RankMemory memory;
    memory.weights = LoadedBytes(model_plan.claims[r]);
    memory.replicated = replicated[r];
    for (const Claim& claim : model_plan.claims[r]) memory.resident += claim.resident;
    memory.kv = executor.kv_bytes();
    memory.state = executor.state_bytes();
    memory.workspace = dry->allocated() - before - memory.resident - memory.kv - memory.state;
    memory.comm = SharedBytesPerRank(model_plan.ranks());
    memories.push_back(memory);
  }
  return memories;
}

}  // namespace trine
