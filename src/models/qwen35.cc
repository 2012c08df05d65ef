// qwen35 (Qwen3.5 to 3.8, and Ternary-Bonsai): most layers are Gated DeltaNet, every few one is
// attention with gated output; both are followed by SwiGLU. Source: transformers' qwen3_5, and the
// GGUF names of llama.cpp's qwen35. Blocks for multi-token prediction are left out.
#include <variant>

#include "src/core/quote.h"
#include "src/models/gated_delta_net.h"

namespace trine {
namespace {

constexpr AttentionOptions kAttention{.qk_norm = true, .output_gate = true};

struct Layer {
  RmsNorm mixer_norm;
  std::variant<Attention, GatedDeltaNet> mixer;
  RmsNorm ffn_norm;
  Mlp mlp;
};

Layer BuildLayer(WeightLoader& loader, int index, const RankPlan& plan) {
  const std::string prefix = "blk." + std::to_string(index) + ".";
  const ModelConfig& config = plan.config;
  RmsNorm mixer_norm(loader, prefix + "attn_norm.weight", config.hidden, config.norm_eps);
  auto mixer = config.is_recurrent(index)
                   ? std::variant<Attention, GatedDeltaNet>(GatedDeltaNet(loader, prefix, plan))
                   : Attention(loader, prefix, plan, kAttention);
  return {std::move(mixer_norm), std::move(mixer),
          RmsNorm(loader, prefix + "post_attention_norm.weight", config.hidden, config.norm_eps),
          Mlp(loader, prefix, plan)};
}

class Qwen35 final : public Model {
 public:
  Qwen35(const RankPlan& plan, WeightLoader& loader, RankContext& context)
      : context_(context),
        config_(plan.config),
        share_(plan.share),
        delta_layout_(GatedDeltaNet::Layout(plan)),
        rope_(LoadRope(config_, RopePairs::kHalves, loader)),
        embedding_(loader, "token_embd.weight", config_.vocab, config_.hidden,
                   context.limits.tokens),
        output_norm_(loader, "output_norm.weight", config_.hidden, config_.norm_eps),
        head_(loader, config_, share_),
        x_(context.backend, context.limits.tokens, config_.hidden),
        h_(context.backend, context.limits.tokens, config_.hidden),
        words_(context.backend, context.limits.tokens, config_.hidden + kPartialExtraWords),
        angles_(context.backend, context.limits.tokens, rope_.params.dims),
        last_(context.backend, context.limits.logit_rows, config_.hidden),
        attention_space_(context.backend, plan, kAttention, context.limits.tokens),
        delta_space_(context.backend, plan, context.limits.tokens),
        mlp_space_(context.backend, share_, context.limits.tokens) {
    for (int i = 0; i < config_.layers && loader.status().ok(); ++i) {
      layers_.push_back(BuildLayer(loader, i, plan));
    }
    for (int i = 0; i < config_.ignored_blocks; ++i) {
      loader.Ignore("blk." + std::to_string(config_.layers + i) + ".");
    }
  }

  const ModelConfig& config() const override { return config_; }
  int kv_layers() const override { return config_.layers - config_.recurrent_layers(); }
  KvLayout kv_layout() const override {
    return {share_.kv_heads.size(), config_.head_dim, context_.kv_type};
  }
  int delta_layers() const override { return config_.recurrent_layers(); }
  DeltaLayout delta_layout() const override { return delta_layout_; }
  Interval vocab_shard() const override { return share_.vocab; }

  void Forward(const StepBatch& batch, const SequenceMemory& memory, F32View logits) override {
    RankContext& context = context_;
    const int64_t tokens = batch.size();
    const Residual residual{x_.Rows(tokens), memory.row_faults};  // [T, E]
    const F32View h = h_.Rows(tokens);                            // [T, E]
    const F32View angles = angles_.Rows(tokens);                  // [T, rope dims]
    const I64View words = words_.Rows(tokens);                    // [T, E + 2]
    auto kv = memory.kv.begin();
    auto states = memory.states.begin();

    context.backend.RopeAngles(batch.places, rope_.params, angles);
    embedding_.Forward(context, batch.tokens, residual.x);
    layers_[0].mixer_norm.Forward(context, residual.x, h);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      const RmsNorm& next = i + 1 < layers_.size() ? layers_[i + 1].mixer_norm : output_norm_;
      const auto* attention = std::get_if<Attention>(&layer.mixer);
      const Partial mixed =
          attention != nullptr
              ? attention->Forward(context, h, {batch.places, angles, *kv++}, rope_.params,
                                   attention_space_, words)
              : std::get<GatedDeltaNet>(layer.mixer)
                    .Forward(context, h, batch.places, *states++, delta_space_, words);
      residual.AddNorm(context, mixed, layer.ffn_norm, h);  // all-reduce
      const Partial mlp = layer.mlp.Forward(context, h, mlp_space_, words);
      residual.AddNorm(context, mlp, next, h);  // all-reduce
    }
    const F32View last = last_.Rows(std::ssize(batch.logit_rows));  // [R, E]
    context.backend.SelectRows(h, batch.logit_rows, last);
    head_.Forward(context, last, logits);
  }

 private:
  RankContext& context_;
  const ModelConfig config_;
  const RankShare share_;
  const DeltaLayout delta_layout_;
  Rope rope_;
  StreamedEmbedding embedding_;
  std::vector<Layer> layers_;
  RmsNorm output_norm_;
  ParallelLMHead head_;
  Scratch<float> x_, h_;
  Scratch<int64_t> words_;
  Scratch<float> angles_, last_;
  Attention::Workspace attention_space_;
  GatedDeltaNet::Workspace delta_space_;
  Mlp::Workspace mlp_space_;
};

// Which blocks are recurrent: a list of all of them, or all but every interval-th.
Result<std::vector<bool>> ReadRecurrent(const Metadata& meta, int64_t blocks) {
  const std::string key = "qwen35.attention.recurrent_layers";
  TRINE_ASSIGN(const std::vector<bool>* listed, meta.Bools(key));
  if (listed != nullptr) {
    if (std::ssize(*listed) != blocks) {
      return BadInput("'" + key + "' has " + std::to_string(listed->size()) +
                      " entries for 'qwen35.block_count' " + std::to_string(blocks));
    }
    return *listed;
  }
  const std::string interval_key = "qwen35.full_attention_interval";
  TRINE_ASSIGN(const int64_t interval, meta.IntOr(interval_key, 4));
  if (interval < 1 || interval > blocks) {
    return BadInput("'" + interval_key + "' is " + std::to_string(interval) +
                    "; 1 to 'qwen35.block_count' " + std::to_string(blocks) + " expected");
  }
  std::vector<bool> recurrent;
  for (int64_t i = 0; i < blocks; ++i) recurrent.push_back((i + 1) % interval != 0);
  return recurrent;
}

}  // namespace

Status ReadQwen35Config(const Metadata& meta, ModelConfig& config) {
  TRINE_ASSIGN(const int64_t ignored, meta.IntOr("qwen35.nextn_predict_layers", 0));
  if (ignored < 0 || ignored >= config.layers) {
    return BadInput("'qwen35.nextn_predict_layers' is " + std::to_string(ignored) +
                    "; 0 to less than 'qwen35.block_count' " + std::to_string(config.layers) +
                    " expected");
  }
  config.output_gate = true;
  TRINE_ASSIGN(config.recurrent, ReadRecurrent(meta, config.layers));
  config.ignored_blocks = static_cast<int>(ignored);
  config.layers -= config.ignored_blocks;
  config.recurrent.resize(static_cast<size_t>(config.layers));
  TRINE_ASSIGN(config.key_heads, PositiveKey(meta, "qwen35.ssm.group_count"));
  TRINE_ASSIGN(config.value_heads, PositiveKey(meta, "qwen35.ssm.time_step_rank"));
  TRINE_ASSIGN(config.delta_dim, PositiveKey(meta, "qwen35.ssm.state_size"));
  TRINE_ASSIGN(config.conv_taps, PositiveKey(meta, "qwen35.ssm.conv_kernel"));
  TRINE_ASSIGN(const int64_t inner, PositiveKey(meta, "qwen35.ssm.inner_size"));
  if (config.value_heads % config.key_heads != 0) {
    return BadInput("'qwen35.ssm.time_step_rank' " + std::to_string(config.value_heads) +
                    " is not a multiple of 'qwen35.ssm.group_count' " +
                    std::to_string(config.key_heads));
  }
  if (inner != config.value_heads * config.delta_dim) {
    return BadInput("'qwen35.ssm.inner_size' is " + std::to_string(inner) +
                    "; time_step_rank x state_size is " +
                    std::to_string(config.value_heads * config.delta_dim));
  }
  if (config.conv_taps < 2 || config.conv_taps > kMaxConvTaps) {
    return BadInput("'qwen35.ssm.conv_kernel' is " + std::to_string(config.conv_taps) + "; 2 to " +
                    std::to_string(kMaxConvTaps) + " is supported");
  }
  return {};
}

std::unique_ptr<Model> BuildQwen35(const RankPlan& plan, WeightLoader& loader,
                                   RankContext& context) {
  return std::make_unique<Qwen35>(plan, loader, context);
}

}  // namespace trine
