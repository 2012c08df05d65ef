// trine plan: what each rank of a job would hold, from headers alone.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "src/commands/commands.h"
#include "src/synth/model_layout.h"

namespace trine {
namespace {

struct Totals {
  int64_t tensor_bytes = 0;  // every tensor of the file once
  int64_t streamed = 0;      // of those, read row by row while running
  int64_t memory = 0;        // of all ranks
};

Totals Add(const WeightStore& store, const JobPlan& plan, const std::vector<RankMemory>& ranks) {
  Totals totals;
  for (const TensorInfo& tensor : store.tensors()) totals.tensor_bytes += tensor.bytes;
  for (const Claim& claim : plan.model.claims[0]) {
    totals.streamed += claim.streamed ? claim.bytes : 0;
  }
  for (const RankMemory& rank : ranks) totals.memory += rank.total();
  return totals;
}

void PrintJson(const JobPlan& plan, const std::vector<RankMemory>& ranks, const Totals& totals) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankMemory& memory = ranks[rank];
    list.push_back({{"rank", rank},
                    {"weights_bytes", memory.weights},
                    {"replicated_bytes", memory.replicated},
                    {"resident_bytes", memory.resident},
                    {"kv_bytes", memory.kv},
                    {"state_bytes", memory.state},
                    {"workspace_bytes", memory.workspace},
                    {"comm_bytes", memory.comm},
                    {"total_bytes", memory.total()}});
  }
  std::vector<int> valid;
  for (int np = 1; np <= MostRanks(plan); ++np) valid.push_back(np);
  const nlohmann::ordered_json json = {{"np", ranks.size()},
                                       {"ranks", list},
                                       {"weights_bytes", totals.tensor_bytes},
                                       {"streamed_bytes", totals.streamed},
                                       {"total_bytes", totals.memory},
                                       {"context", plan.limits.context},
                                       {"sequences", plan.limits.sequences},
                                       {"valid_np", valid}};
  std::printf("%s\n", json.dump(2).c_str());
}

void PrintText(const WeightStore& store, const JobPlan& plan, const std::vector<RankMemory>& ranks,
               const Totals& totals) {
  const auto mega = [](int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  std::printf("%s: %zu %s, context %lld, %lld sequence(s); MB\n", store.name().c_str(),
              ranks.size(), ranks.size() == 1 ? "rank" : "ranks",
              static_cast<long long>(plan.limits.context),
              static_cast<long long>(plan.limits.sequences));
  std::printf("%4s %10s %10s %10s %10s %10s %10s %10s %10s\n", "rank", "weights", "replicated",
              "resident", "KV", "state", "workspace", "comm", "total");
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankMemory& m = ranks[rank];
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
  const SessionOptions options = ToOptions(settings, /*threads=*/1, /*sequences=*/1);
  TRINE_ASSIGN(const JobPlan plan, PlanJob(*store, options, settings.plan_ranks));
  TRINE_ASSIGN(const std::vector<RankMemory> ranks, PlanMemory(*store, options, plan));
  const Totals totals = Add(*store, plan, ranks);
  if (settings.json) {
    PrintJson(plan, ranks, totals);
  } else {
    PrintText(*store, plan, ranks, totals);
  }
  return {};
}

}  // namespace trine
