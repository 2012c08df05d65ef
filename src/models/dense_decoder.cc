#include "src/models/dense_decoder.h"

namespace trine {
namespace {

struct Layer {
  RmsNorm attention_norm;
  Attention attention;
  RmsNorm ffn_norm;
  Mlp mlp;
};

Layer BuildLayer(WeightLoader& loader, int index, const RankPlan& plan, const DenseTraits& traits) {
  const std::string prefix = "blk." + std::to_string(index) + ".";
  const ModelConfig& config = plan.config;
  return {RmsNorm(loader, prefix + "attn_norm.weight", config.hidden, config.norm_eps),
          Attention(loader, prefix, plan, traits.attention),
          RmsNorm(loader, prefix + "ffn_norm.weight", config.hidden, config.norm_eps),
          Mlp(loader, prefix, plan)};
}

class DenseDecoder final : public Model {
 public:
  DenseDecoder(const RankPlan& plan, WeightLoader& loader, RankContext& context,
               const DenseTraits& traits)
      : context_(context),
        config_(plan.config),
        share_(plan.share),
        rope_(LoadRope(config_, traits.rope_pairs, loader)),
        embedding_(loader, "token_embd.weight", config_.vocab, config_.hidden,
                   context.limits.tokens),
        output_norm_(loader, "output_norm.weight", config_.hidden, config_.norm_eps),
        head_(loader, config_, share_),
        x_(context.backend, context.limits.tokens, config_.hidden),
        h_(context.backend, context.limits.tokens, config_.hidden),
        words_(context.backend, context.limits.tokens, config_.hidden + kPartialExtraWords),
        angles_(context.backend, context.limits.tokens, rope_.params.dims),
        last_(context.backend, context.limits.logit_rows, config_.hidden),
        attention_space_(context.backend, plan, traits.attention, context.limits.tokens),
        mlp_space_(context.backend, share_, context.limits.tokens) {
    for (int i = 0; i < config_.layers && loader.status().ok(); ++i) {
      layers_.push_back(BuildLayer(loader, i, plan, traits));
    }
  }

  const ModelConfig& config() const override { return config_; }
  int kv_layers() const override { return config_.layers; }
  KvLayout kv_layout() const override {
    return {share_.kv_heads.size(), config_.head_dim, context_.kv_type};
  }
  Interval vocab_shard() const override { return share_.vocab; }

  void Forward(const StepBatch& batch, const SequenceMemory& memory, F32View logits) override {
    RankContext& context = context_;
    const int64_t tokens = batch.size();
    const Residual residual{x_.Rows(tokens), memory.row_faults};  // [T, E]
    const F32View h = h_.Rows(tokens);                            // [T, E]
    const F32View angles = angles_.Rows(tokens);                  // [T, rope dims]
    const I64View words = words_.Rows(tokens);                    // [T, E + 2]

    context.backend.RopeAngles(batch.places, rope_.params, angles);
    embedding_.Forward(context, batch.tokens, residual.x);
    layers_[0].attention_norm.Forward(context, residual.x, h);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      const RmsNorm& next = i + 1 < layers_.size() ? layers_[i + 1].attention_norm : output_norm_;
      const AttentionStep step{batch.places, angles, memory.kv[i]};
      const Partial attention =
          layer.attention.Forward(context, h, step, rope_.params, attention_space_, words);
      residual.AddNorm(context, attention, layer.ffn_norm, h);  // all-reduce
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
  Rope rope_;
  StreamedEmbedding embedding_;
  std::vector<Layer> layers_;
  RmsNorm output_norm_;
  ParallelLMHead head_;
  Scratch<float> x_, h_;
  Scratch<int64_t> words_;
  Scratch<float> angles_, last_;
  Attention::Workspace attention_space_;
  Mlp::Workspace mlp_space_;
};

}  // namespace

std::unique_ptr<Model> BuildDenseDecoder(const RankPlan& plan, WeightLoader& loader,
                                         RankContext& context, const DenseTraits& traits) {
  return std::make_unique<DenseDecoder>(plan, loader, context, traits);
}

}  // namespace trine
