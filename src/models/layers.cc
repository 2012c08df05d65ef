#include "src/models/layers.h"

#include <cmath>

namespace trine {
namespace {

Buffer LoadBias(WeightLoader& loader, const std::string& name, int64_t rows, Interval part,
                Bias bias) {
  const std::string tensor = name + ".bias";
  if (bias == Bias::kNone || (bias == Bias::kOptional && !loader.Has(tensor))) return {};
  return loader.Vector(tensor, rows, part);
}

}  // namespace

ColumnParallelLinear::ColumnParallelLinear(WeightLoader& loader, const std::string& name,
                                           int64_t rows, int64_t cols, Interval part, Bias bias)
    : weight_(loader.Matrix(name + ".weight", rows, cols, Shard::Rows(part), /*granule=*/0)),
      bias_(LoadBias(loader, name, rows, part, bias)) {}

RowParallelLinear::RowParallelLinear(WeightLoader& loader, const std::string& name, int64_t rows,
                                     int64_t cols, Interval part, int64_t granule, Bias bias)
    : weight_(loader.Matrix(name + ".weight", rows, cols, Shard::Cols(part), granule)),
      bias_(LoadBias(loader, name, rows, {0, rows}, bias)) {}

Partial RowParallelLinear::Forward(RankContext& context, F32View x, I64View words) const {
  context.backend.LinearPartial(x, *weight_, words);
  return {words, bias_.as<float>()};
}

void Residual::AddNorm(RankContext& context, const Partial& partial, const RmsNorm& norm,
                       F32View out) const {
  const I64View& words = partial.words;
  context.comm.AllReduceSum(words.data, words.rows * words.stride, Element::kInt64);
  context.backend.AddPartialNorm(x, words, partial.bias, norm.weight(), norm.eps(), out,
                                 row_faults);
}

StreamedEmbedding::StreamedEmbedding(WeightLoader& loader, const WeightStore& store,
                                     const std::string& name, int64_t vocab, int64_t hidden,
                                     RankContext* context)
    : store_(store), table_(loader.Streamed(name, vocab, hidden)) {
  if (context != nullptr && table_ != nullptr) {
    packed_.resize(static_cast<size_t>(context->limits.tokens * RowBytes(table_->type, hidden)));
  }
}

void StreamedEmbedding::Forward(RankContext& context, std::span<const int32_t> tokens,
                                F32View out) {
  const Status read = store_.ReadRows(*table_, tokens, packed_.data());
  if (!read.ok()) context.comm.Abort(read.message());
  context.backend.DecodeRows(table_->type, packed_.data(), out);
}

Attention::Attention(WeightLoader& loader, const std::string& prefix, const ModelConfig& config,
                     const RankShare& share, const AttentionOptions& options)
    : head_dim_(config.head_dim),
      q_(loader, prefix + "attn_q", config.q_heads * head_dim_, config.hidden,
         share.q_heads.Times(head_dim_), options.input_bias),
      k_(loader, prefix + "attn_k", config.kv_heads * head_dim_, config.hidden,
         share.kv_heads.Times(head_dim_), options.input_bias),
      v_(loader, prefix + "attn_v", config.kv_heads * head_dim_, config.hidden,
         share.kv_heads.Times(head_dim_), options.input_bias),
      output_(loader, prefix + "attn_output", config.hidden, config.q_heads * head_dim_,
              share.q_heads.Times(head_dim_), /*granule=*/head_dim_, options.output_bias) {
  if (options.qk_norm) {
    qk_norms_.emplace_back(loader, prefix + "attn_q_norm.weight", head_dim_, config.norm_eps);
    qk_norms_.emplace_back(loader, prefix + "attn_k_norm.weight", head_dim_, config.norm_eps);
  }
  const int64_t group = config.q_heads / config.kv_heads;
  for (int64_t head = share.q_heads.begin; head < share.q_heads.end; ++head) {
    kv_heads_.push_back(static_cast<int32_t>(head / group - share.kv_heads.begin));
  }
}

Attention::Workspace::Workspace(RankContext* context, const ModelConfig& config,
                                const RankShare& share, int64_t tokens)
    : q(context, tokens, share.q_heads.size() * config.head_dim),
      out(context, tokens, share.q_heads.size() * config.head_dim),
      k(context, tokens, share.kv_heads.size() * config.head_dim),
      v(context, tokens, share.kv_heads.size() * config.head_dim) {}

Partial Attention::Forward(RankContext& context, F32View h, const AttentionStep& step,
                           const RopeParams& rope, Workspace& workspace, I64View words) const {
  Backend& backend = context.backend;
  const F32View q = workspace.q.Rows(h.rows), out = workspace.out.Rows(h.rows);  // [T, H * D]
  const F32View k = workspace.k.Rows(h.rows), v = workspace.v.Rows(h.rows);      // [T, G * D]
  const LinearTask projections[] = {q_.Task(q), k_.Task(k), v_.Task(v)};
  backend.Linear(h, projections);
  if (!qk_norms_.empty()) {
    const auto heads = [&](F32View x) {  // [T * heads, D]
      return F32View{x.data, x.rows * x.cols / head_dim_, head_dim_, head_dim_};
    };
    qk_norms_[0].Forward(context, heads(q), heads(q));
    qk_norms_[1].Forward(context, heads(k), heads(k));
  }
  backend.Rope(q, step.angles, rope);
  backend.Rope(k, step.angles, rope);
  backend.WriteKv(k, v, step.places, step.pages);
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim_));
  backend.PagedAttention(q, kv_heads_, scale, step.places, step.pages, out);
  return output_.Forward(context, out, words);
}

Mlp::Mlp(WeightLoader& loader, const std::string& prefix, const ModelConfig& config,
         const RankShare& share)
    : gate_(loader, prefix + "ffn_gate", config.ffn, config.hidden, share.ffn, Bias::kNone),
      up_(loader, prefix + "ffn_up", config.ffn, config.hidden, share.ffn, Bias::kNone),
      down_(loader, prefix + "ffn_down", config.hidden, config.ffn, share.ffn, config.ffn_granule,
            Bias::kNone) {}

Mlp::Workspace::Workspace(RankContext* context, const RankShare& share, int64_t tokens)
    : gate(context, tokens, share.ffn.size()), up(context, tokens, share.ffn.size()) {}

Partial Mlp::Forward(RankContext& context, F32View h, Workspace& workspace, I64View words) const {
  const F32View gate = workspace.gate.Rows(h.rows), up = workspace.up.Rows(h.rows);  // [T, F]
  const LinearTask projections[] = {gate_.Task(gate), up_.Task(up)};
  context.backend.Linear(h, projections);
  context.backend.SiluMul(gate, up, gate);
  return down_.Forward(context, gate, words);
}

ParallelLMHead::ParallelLMHead(WeightLoader& loader, const ModelConfig& config,
                               const RankShare& share)
    : weight_(loader.Matrix(loader.Has("output.weight") ? "output.weight" : "token_embd.weight",
                            config.vocab, config.hidden, Shard::Rows(share.vocab),
                            /*granule=*/0)) {}

void ParallelLMHead::Forward(RankContext& context, F32View h, F32View logits) const {
  if (weight_ == nullptr) return;
  const LinearTask task[] = {{weight_.get(), nullptr, logits}};
  context.backend.Linear(h, task);
}

}  // namespace trine
