#include "src/models/decoder.h"

#include <variant>

#include "src/models/gated_delta_net.h"

namespace trine {
namespace {

struct Layer {
  RmsNorm mixer_norm;
  std::variant<Attention, GatedDeltaNet> mixer;
  RmsNorm ffn_norm;
  Mlp mlp;
};

Layer BuildLayer(WeightLoader& loader, int index, const RankPlan& plan,
                 const DecoderTraits& traits) {
  const std::string prefix = "blk." + std::to_string(index) + ".";
  const ModelConfig& config = plan.config;
  RmsNorm mixer_norm(loader, prefix + "attn_norm.weight", config.hidden, config.norm_eps);
  auto mixer = config.is_recurrent(index)
                   ? std::variant<Attention, GatedDeltaNet>(GatedDeltaNet(loader, prefix, plan))
                   : Attention(loader, prefix, plan, traits.attention);
  return {std::move(mixer_norm), std::move(mixer),
          RmsNorm(loader, prefix + traits.ffn_norm, config.hidden, config.norm_eps),
          Mlp(loader, prefix, plan)};
}

class Decoder final : public Model {
 public:
  Decoder(const RankPlan& plan, WeightLoader& loader, RankContext& context,
          const DecoderTraits& traits)
      : context_(context),
        config_(plan.config),
        share_(plan.share),
        delta_layout_(GatedDeltaNet::Layout(plan)),
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
        delta_space_(context.backend, plan, context.limits.tokens),
        mlp_space_(context.backend, share_, context.limits.tokens) {
    for (int i = 0; i < config_.layers && loader.status().ok(); ++i) {
      layers_.push_back(BuildLayer(loader, i, plan, traits));
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

}  // namespace

std::unique_ptr<Model> BuildDecoder(const RankPlan& plan, WeightLoader& loader,
                                    RankContext& context, const DecoderTraits& traits) {
  return std::make_unique<Decoder>(plan, loader, context, traits);
}

}  // namespace trine
