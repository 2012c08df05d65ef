#include "src/models/model.h"

#include <algorithm>
#include <limits>

#include "src/core/quote.h"

namespace trine {
namespace {

struct Architecture {
  const char* name;
  ModelBuilder build;
};

// The table of architectures.
constexpr Architecture kArchitectures[] = {
    {"llama", BuildLlama},
    {"qwen2", BuildQwen2},
    {"qwen3", BuildQwen3},
};

Result<ModelBuilder> FindArchitecture(const std::string& file, const std::string& name) {
  std::string known;
  for (const Architecture& architecture : kArchitectures) {
    if (name == architecture.name) return architecture.build;
    known += (known.empty() ? "" : ", ") + std::string(architecture.name);
  }
  return BadInput(file + ": architecture " + Quote(name) + " is not supported; supported are " +
                  known);
}

Result<int64_t> Positive(const std::string& key, Result<int64_t> value) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (value.ok() && (*value < 1 || *value > kMost)) {
    return BadInput("metadata key '" + key + "' is " + std::to_string(*value) + "; 1 to " +
                    std::to_string(kMost) + " expected");
  }
  return value;
}

// The dimensions against the first layer's tensors, before any arithmetic is done with them.
Status CheckDimensions(const WeightStore& store, const ModelConfig& config) {
  if (config.layers > std::ssize(store.tensors())) {
    return BadInput("'" + config.architecture + ".block_count' is " +
                    std::to_string(config.layers) + ", but there are only " +
                    std::to_string(store.tensors().size()) + " tensors");
  }
  const int64_t heads = config.q_heads * config.head_dim;
  TRINE_RETURN_IF_ERROR(store.Require("blk.0.attn_output.weight", {heads, config.hidden}).status());
  return store.Require("blk.0.ffn_down.weight", {config.ffn, config.hidden}).status();
}

Result<ModelConfig> ReadConfig(const WeightStore& store) {
  const Metadata& meta = store.metadata();
  ModelConfig config;
  TRINE_ASSIGN(config.architecture, meta.String("general.architecture"));
  const std::string arch = config.architecture + ".";
  const auto required = [&](const std::string& key) {
    return Positive(arch + key, meta.Int(arch + key));
  };
  const auto optional = [&](const std::string& key, int64_t fallback) {
    return Positive(arch + key, meta.IntOr(arch + key, fallback));
  };
  TRINE_ASSIGN(const int64_t layers, required("block_count"));
  config.layers = static_cast<int>(layers);
  TRINE_ASSIGN(config.hidden, required("embedding_length"));
  TRINE_ASSIGN(config.ffn, required("feed_forward_length"));
  TRINE_ASSIGN(config.q_heads, required("attention.head_count"));
  TRINE_ASSIGN(config.kv_heads, optional("attention.head_count_kv", config.q_heads));
  TRINE_ASSIGN(config.head_dim, optional("attention.key_length",
                                         std::max<int64_t>(1, config.hidden / config.q_heads)));
  TRINE_ASSIGN(config.context, required("context_length"));
  TRINE_ASSIGN(const double eps, meta.Float(arch + "attention.layer_norm_rms_epsilon"));
  config.norm_eps = static_cast<float>(eps);
  if (!(eps >= 0 && eps < 1)) {
    return BadInput("'" + arch + "attention.layer_norm_rms_epsilon' is " + std::to_string(eps) +
                    "; a small positive number expected");
  }
  TRINE_ASSIGN(const int64_t value_length, optional("attention.value_length", config.head_dim));
  if (value_length != config.head_dim) {
    return BadInput("'" + arch + "attention.value_length' is " + std::to_string(value_length) +
                    " and key_length " + std::to_string(config.head_dim) + "; they must be equal");
  }
  if (config.q_heads % config.kv_heads != 0) {
    return BadInput("'" + arch + "attention.head_count' " + std::to_string(config.q_heads) +
                    " is not a multiple of head_count_kv " + std::to_string(config.kv_heads));
  }
  if (config.head_dim % 2 != 0 || config.head_dim > kMaxHeadDim) {
    return BadInput("head dimension " + std::to_string(config.head_dim) +
                    " is not supported; even numbers up to " + std::to_string(kMaxHeadDim) +
                    " are");
  }
  if (meta.Find(arch + "expert_count") != nullptr) {
    TRINE_ASSIGN(const int64_t experts, meta.Int(arch + "expert_count"));
    if (experts > 0) {
      return BadInput("'" + arch + "expert_count' is " + std::to_string(experts) +
                      "; mixture-of-experts models are not supported");
    }
  }
  TRINE_ASSIGN(const TensorInfo* embedding, store.Require("token_embd.weight"));
  config.vocab = embedding->rows();
  return config;
}

// One FFN granule for the whole model: that of its widest quant block, so that the shares of
// channels are the same in every layer.
Result<int64_t> ModelFfnGranule(const WeightStore& store, const ModelConfig& config) {
  int64_t granule = 0;
  for (int i = 0; i < config.layers; ++i) {
    const std::string name = "blk." + std::to_string(i) + ".ffn_down.weight";
    TRINE_ASSIGN(const TensorInfo* down, store.Require(name));
    granule = std::max(granule, FfnGranule(config.ffn, down->type));
  }
  return granule;
}

Status InFile(const WeightStore& store, const Status& status) {
  const std::string& path = store.files()[0].path();
  if (status.ok() || status.message().starts_with(path)) return status;
  return {status.code(), path + ": " + status.message()};
}

Result<ModelPlan> MakePlan(const WeightStore& store, int ranks,
                           const std::vector<double>& weights) {
  TRINE_ASSIGN(const std::string name, store.metadata().String("general.architecture"));
  TRINE_ASSIGN(const ModelBuilder build, FindArchitecture(store.files()[0].path(), name));
  ModelPlan plan;
  TRINE_ASSIGN(plan.config, ReadConfig(store));
  TRINE_RETURN_IF_ERROR(CheckDimensions(store, plan.config));
  const ModelConfig& config = plan.config;
  ShardDims dims{config.q_heads, config.kv_heads, config.ffn,    0,
                 config.vocab,   config.layers,   config.hidden, config.head_dim};
  TRINE_ASSIGN(dims.ffn_granule, ModelFfnGranule(store, config));
  TRINE_ASSIGN(const ShardPlan shards, ShardPlan::Make(dims, ranks, weights));
  plan.config.ffn_granule = dims.ffn_granule;
  for (int rank = 0; rank < ranks; ++rank) {
    WeightLoader loader(store, /*backend=*/nullptr, {});
    build(plan.config, shards.share(rank), store, loader, nullptr);
    TRINE_RETURN_IF_ERROR(loader.Finish(name));
    plan.shares.push_back(shards.share(rank));
    plan.claims.push_back(loader.claims());
  }
  return plan;
}

}  // namespace

Result<ModelPlan> PlanModel(const WeightStore& store, int ranks,
                            const std::vector<double>& weights) {
  Result<ModelPlan> plan = MakePlan(store, ranks, weights);
  if (!plan.ok()) return InFile(store, plan.status());
  return plan;
}

Result<std::unique_ptr<Model>> LoadModel(const WeightStore& store, const ModelPlan& plan,
                                         RankContext& context,
                                         std::function<void(int64_t bytes)> progress) {
  TRINE_ASSIGN(const ModelBuilder build,
               FindArchitecture(store.files()[0].path(), plan.config.architecture));
  WeightLoader loader(store, &context.backend, std::move(progress));
  const auto rank = static_cast<size_t>(context.comm.world().rank);
  std::unique_ptr<Model> model = build(plan.config, plan.shares[rank], store, loader, &context);
  TRINE_RETURN_IF_ERROR(loader.Finish(plan.config.architecture));
  return model;
}

}  // namespace trine
