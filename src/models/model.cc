#include "src/models/model.h"

#include <algorithm>
#include <limits>

#include "src/core/quote.h"

namespace trine {
namespace {

struct Architecture {
  const char* name;
  ModelBuilder build;
  Status (*read_config)(const Metadata& meta, ModelConfig& config);  // nullptr: nothing of its own
};

// The table of architectures.
constexpr Architecture kArchitectures[] = {
    {"llama", BuildLlama, nullptr},
    {"qwen2", BuildQwen2, nullptr},
    {"qwen3", BuildQwen3, nullptr},
    {"qwen35", BuildQwen35, ReadQwen35Config},
};

// Files that lie beside a model's and are no language model themselves.
struct Companion {
  const char* name;
  const char* what;
};
constexpr Companion kCompanions[] = {
    {"clip", "a vision projector (mmproj)"},
    {"dspark", "a drafter for speculative decoding"},
    {"dflash", "a drafter for speculative decoding"},
};

Result<const Architecture*> FindArchitecture(const std::string& file, const std::string& name) {
  std::string known;
  for (const Architecture& architecture : kArchitectures) {
    if (name == architecture.name) return &architecture;
    known += (known.empty() ? "" : ", ") + std::string(architecture.name);
  }
  for (const Companion& companion : kCompanions) {
    if (name != companion.name) continue;
    return BadInput(file + ": architecture " + Quote(name) + " is " + companion.what +
                    ", not a language model; give the model's own file");
  }
  return BadInput(file + ": architecture " + Quote(name) + " is not supported; supported are " +
                  known);
}

constexpr int64_t kMostInKey = std::numeric_limits<int32_t>::max();

Result<int64_t> Positive(const std::string& key, Result<int64_t> value) {
  if (value.ok() && (*value < 1 || *value > kMostInKey)) {
    return BadInput("metadata key '" + key + "' is " + std::to_string(*value) + "; 1 to " +
                    std::to_string(kMostInKey) + " expected");
  }
  return value;
}

// The dimensions against the first layer's tensors of each kind, before any arithmetic is done with
// them.
Status CheckDimensions(const WeightStore& store, const ModelConfig& config) {
  const auto first = [&](bool recurrent) {
    int layer = 0;
    while (layer < config.layers && config.is_recurrent(layer) != recurrent) ++layer;
    return layer;
  };
  const int attention = first(false), delta = first(true);
  if (attention == config.layers) {
    const std::string listed = config.architecture + ".attention.recurrent_layers";
    const bool has_list = store.metadata().Find(listed) != nullptr;
    return BadInput("'" + (has_list ? listed : config.architecture + ".full_attention_interval") +
                    "' makes every layer recurrent; at least one must be attention");
  }
  TRINE_RETURN_IF_ERROR(store
                            .Require("blk." + std::to_string(attention) + ".attn_output.weight",
                                     {config.q_heads * config.head_dim, config.hidden})
                            .status());
  if (delta < config.layers) {
    TRINE_RETURN_IF_ERROR(store
                              .Require("blk." + std::to_string(delta) + ".ssm_out.weight",
                                       {config.value_heads * config.delta_dim, config.hidden})
                              .status());
  }
  return store.Require("blk.0.ffn_down.weight", {config.ffn, config.hidden}).status();
}

Result<ModelConfig> ReadConfig(const WeightStore& store, const Architecture& architecture) {
  const Metadata& meta = store.metadata();
  ModelConfig config;
  TRINE_ASSIGN(config.architecture, meta.String("general.architecture"));
  const std::string arch = config.architecture + ".";
  const auto required = [&](const std::string& key) { return PositiveKey(meta, arch + key); };
  const auto optional = [&](const std::string& key, int64_t fallback) {
    return Positive(arch + key, meta.IntOr(arch + key, fallback));
  };
  TRINE_ASSIGN(const int64_t layers, required("block_count"));
  config.layers = static_cast<int>(layers);
  if (layers > std::ssize(store.tensors())) {
    return BadInput("'" + arch + "block_count' is " + std::to_string(layers) +
                    ", but there are only " + std::to_string(store.tensors().size()) + " tensors");
  }
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
  if (architecture.read_config != nullptr) {
    TRINE_RETURN_IF_ERROR(architecture.read_config(meta, config));
  }
  return config;
}

// Whether the weights NAME of these layers are rotated; all or none must be.
Result<bool> AllRotated(const Rotation& rotation, const std::vector<int>& layers,
                        const std::string& name) {
  std::string listed, missing;
  for (const int layer : layers) {
    const std::string weight = "blk." + std::to_string(layer) + "." + name;
    (rotation.Rotates(weight) ? listed : missing) = weight;
  }
  if (listed.empty() || missing.empty()) return !listed.empty();
  return BadInput("'prism.hadamard.weight_names' lists '" + listed + "', but not '" + missing +
                  "'; list all or none");
}

// One FFN granule for the whole model, so that the shares of channels are the same in every layer:
// the rotation block, or that of the widest quant block, unless one asks for 64 (see FfnGranule).
Result<int64_t> ModelFfnGranule(const WeightStore& store, const ModelConfig& config,
                                const Rotation& rotation) {
  std::vector<int> layers;
  int64_t granule = 0;
  bool narrow = false;
  for (int i = 0; i < config.layers; ++i) {
    layers.push_back(i);
    const TensorInfo* down = store.Find("blk." + std::to_string(i) + ".ffn_down.weight");
    if (down == nullptr) continue;  // the loader will name all that is missing
    granule = std::max(granule, FfnGranule(config.ffn, down->type));
    narrow |= IsTernary(down->type) && config.ffn % 128 != 0;
  }
  TRINE_ASSIGN(const bool rotated, AllRotated(rotation, layers, "ffn_down.weight"));
  return rotated ? rotation.block() : narrow ? 64 : granule;
}

Result<ShardDims> ReadDims(const WeightStore& store, const ModelConfig& config,
                           const Rotation& rotation) {
  std::vector<int> attention, delta;
  for (int i = 0; i < config.layers; ++i) (config.is_recurrent(i) ? delta : attention).push_back(i);
  ShardDims dims;
  dims.q_heads = config.q_heads;
  dims.kv_heads = config.kv_heads;
  dims.head_dim = config.head_dim;
  dims.q_rows = config.output_gate ? 2 * config.head_dim : config.head_dim;
  dims.attention_layers = std::ssize(attention);
  dims.delta_layers = std::ssize(delta);
  dims.key_heads = delta.empty() ? 0 : config.key_heads;
  dims.value_heads = config.value_heads;
  dims.delta_dim = config.delta_dim;
  dims.ffn = config.ffn;
  dims.vocab = config.vocab;
  dims.hidden = config.hidden;
  dims.rotation = rotation.block();
  TRINE_ASSIGN(dims.rotated_attention, AllRotated(rotation, attention, "attn_output.weight"));
  TRINE_ASSIGN(dims.rotated_delta, AllRotated(rotation, delta, "ssm_out.weight"));
  dims.delta_out_of_order =
      !rotation.delta_grouped() && store.conventions().value_heads == ValueHeadOrder::kTiled;
  TRINE_ASSIGN(dims.ffn_granule, ModelFfnGranule(store, config, rotation));
  return dims;
}

Status InFile(const WeightStore& store, const Status& status) {
  const std::string& path = store.name();
  if (status.ok() || status.message().starts_with(path)) return status;
  return {status.code(), path + ": " + status.message()};
}

Result<ModelPlan> MakePlan(const WeightStore& store, int ranks, const std::vector<double>& weights,
                           Backend& dry, std::vector<std::string>* unexpected) {
  TRINE_ASSIGN(const std::string name, store.metadata().String("general.architecture"));
  TRINE_ASSIGN(const Architecture* architecture, FindArchitecture(store.name(), name));
  ModelPlan plan;
  TRINE_ASSIGN(plan.config, ReadConfig(store, *architecture));
  TRINE_RETURN_IF_ERROR(CheckDimensions(store, plan.config));
  TRINE_ASSIGN(plan.rotation, Rotation::Read(store));
  TRINE_ASSIGN(plan.dims, ReadDims(store, plan.config, plan.rotation));
  plan.config.ffn_granule = plan.dims.ffn_granule;
  TRINE_ASSIGN(plan.shards, ShardPlan::Make(plan.dims, ranks, weights));

  const std::unique_ptr<Communicator> comm = MakeSelfCommunicator();
  RankContext context{dry, *comm, {}};
  for (int rank = 0; rank < ranks; ++rank) {
    WeightLoader loader(store, plan.rotation, dry, {});
    architecture->build(plan.ForRank(rank), loader, context);
    TRINE_RETURN_IF_ERROR(loader.Finish(name, unexpected));
    plan.claims.push_back(loader.claims());
  }
  return plan;
}

}  // namespace

Result<int64_t> PositiveKey(const Metadata& meta, const std::string& key) {
  return Positive(key, meta.Int(key));
}

Result<ModelPlan> PlanModel(const WeightStore& store, int ranks, const std::vector<double>& weights,
                            Backend& dry, std::vector<std::string>* unexpected) {
  Result<ModelPlan> plan = MakePlan(store, ranks, weights, dry, unexpected);
  if (!plan.ok()) return InFile(store, plan.status());
  return plan;
}

Result<std::unique_ptr<Model>> LoadModel(const WeightStore& store, const ModelPlan& plan, int rank,
                                         RankContext& context,
                                         std::function<void(int64_t bytes)> progress) {
  TRINE_ASSIGN(const Architecture* architecture,
               FindArchitecture(store.name(), plan.config.architecture));
  WeightLoader loader(store, plan.rotation, context.backend, std::move(progress));
  std::unique_ptr<Model> model = architecture->build(plan.ForRank(rank), loader, context);
  TRINE_RETURN_IF_ERROR(loader.Finish(plan.config.architecture));
  return model;
}

}  // namespace trine
