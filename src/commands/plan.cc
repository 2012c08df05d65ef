// trine plan: what each rank of a job would hold, from headers alone.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "src/commands/commands.h"
#include "src/core/memory.h"
#include "src/synth/model_layout.h"

namespace trine {
namespace {

// What fits beside what was asked for.
struct Fit {
  std::string error;  // of a run; empty: it fits
  int64_t context = 0;
  int64_t sequences = 0;
};

struct Totals {
  int64_t tensor_bytes = 0;  // every tensor of the file once
  int64_t streamed = 0;      // of those, read row by row while running
  int64_t memory = 0;        // of all ranks
};

Totals Add(const WeightStore& store, const JobPlan& plan, const std::vector<RankRoom>& ranks) {
  Totals totals;
  for (const TensorInfo& tensor : store.tensors()) totals.tensor_bytes += tensor.bytes;
  for (const Claim& claim : plan.model.claims[0]) {
    totals.streamed += claim.streamed ? claim.bytes : 0;
  }
  for (const RankRoom& rank : ranks) totals.memory += rank.memory.total();
  return totals;
}

void PrintJson(const JobPlan& plan, const std::vector<RankRoom>& ranks, const Fit& fit,
               const Totals& totals) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankMemory& memory = ranks[rank].memory;
    list.push_back({{"rank", rank},
                    {"weights_bytes", memory.weights},
                    {"replicated_bytes", memory.replicated},
                    {"resident_bytes", memory.resident},
                    {"kv_bytes", memory.kv},
                    {"state_bytes", memory.state},
                    {"workspace_bytes", memory.workspace},
                    {"comm_bytes", memory.comm},
                    {"total_bytes", memory.total()},
                    {"available_bytes", ranks[rank].available}});
  }
  std::vector<int> valid;
  for (int np = 1; np <= MostRanks(plan); ++np) valid.push_back(np);
  const nlohmann::ordered_json json = {{"fits", fit.error.empty()},
                                       {"np", ranks.size()},
                                       {"ranks", list},
                                       {"weights_bytes", totals.tensor_bytes},
                                       {"streamed_bytes", totals.streamed},
                                       {"total_bytes", totals.memory},
                                       {"context", plan.limits.context},
                                       {"sequences", plan.limits.sequences},
                                       {"kv_tokens", plan.limits.pages * kPageTokens},
                                       {"max_context", fit.context},
                                       {"max_sequences", fit.sequences},
                                       {"valid_np", valid}};
  std::printf("%s\n", json.dump(2).c_str());
}

void PrintText(const WeightStore& store, const JobPlan& plan, const std::vector<RankRoom>& ranks,
               const Fit& fit, const Totals& totals) {
  const auto mega = [](int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  std::printf("%s: %zu %s, context %lld, %lld sequence(s); MB\n", store.name().c_str(),
              ranks.size(), ranks.size() == 1 ? "rank" : "ranks",
              static_cast<long long>(plan.limits.context),
              static_cast<long long>(plan.limits.sequences));
  std::printf("%4s %10s %10s %10s %10s %10s %10s %10s %10s\n", "rank", "weights", "replicated",
              "resident", "KV", "state", "workspace", "comm", "total");
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankMemory& m = ranks[rank].memory;
    std::printf("%4zu %10.1f %10.1f %10.1f %10.1f %10.1f %10.1f %10.1f %10.1f\n", rank,
                mega(m.weights), mega(m.replicated), mega(m.resident), mega(m.kv), mega(m.state),
                mega(m.workspace), mega(m.comm), mega(m.total()));
  }
  std::printf("weights: of the file; resident: the same, as this device keeps them\n");
  std::printf(
      "file: %.1f MB of tensors, %.1f MB of them read while running; memory of all ranks: "
      "%.1f MB\n",
      mega(totals.tensor_bytes), mega(totals.streamed), mega(totals.memory));
  std::printf("rank counts: 1 to %d\n", MostRanks(plan));
  std::printf(
      "each rank may take %s: a context of up to %lld tokens, or %lld sequence(s) of %lld\n",
      MemoryText(ranks[0].available).c_str(), static_cast<long long>(fit.context),
      static_cast<long long>(fit.sequences), static_cast<long long>(plan.limits.context));
  if (!fit.error.empty()) std::printf("does not fit: %s\n", fit.error.c_str());
}

Result<std::unique_ptr<WeightStore>> FileOrPreset(const Settings& settings) {
  if (!settings.model.empty()) return OpenWeights(settings.model);
  TRINE_ASSIGN(const Preset* preset, FindPreset(settings.preset));
  TRINE_ASSIGN(const DType type, FindSynthType(settings.type, preset->type));
  TRINE_ASSIGN(const int layers, LayerCount(*preset, settings.layers));
  return DescribeFile(*preset, type, layers);
}

}  // namespace

Status PlanCommand(const Settings& settings) {
  TRINE_ASSIGN(const std::unique_ptr<WeightStore> store, FileOrPreset(settings));
  const SessionOptions options = ToOptions(
      settings, /*threads=*/1, std::max<int64_t>(1, settings.parallel), settings.plan_ranks);
  const std::vector<int64_t> available(static_cast<size_t>(settings.plan_ranks), options.memory);
  TRINE_ASSIGN(JobPlan plan, PlanJob(*store, options, settings.plan_ranks));
  TRINE_ASSIGN(const std::vector<RankRoom> all, PlanRooms(*store, options, plan, available));
  const Result<int64_t> pages = FitPages(all, options, plan);
  // What does not fit is shown with one sequence's pages, the fewest that a job has.
  plan.limits.pages = pages.ok() ? *pages : PagesFor(plan.limits.context);
  TRINE_ASSIGN(const std::vector<RankRoom> ranks, PlanRooms(*store, options, plan, available));
  Fit fit{pages.status().message()};
  TRINE_ASSIGN(fit.context, MostContext(*store, options, available));
  TRINE_ASSIGN(fit.sequences, MostSequences(*store, options, available));
  const Totals totals = Add(*store, plan, ranks);
  if (settings.json) {
    PrintJson(plan, ranks, fit, totals);
  } else {
    PrintText(*store, plan, ranks, fit, totals);
  }
  return {};
}

}  // namespace trine
