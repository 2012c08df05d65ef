#include "src/models/layers.h"

#include <cmath>

namespace trine {
namespace {

Buffer LoadBias(WeightLoader& loader, const std::string& name, int64_t rows, const Shard& shard,
                Bias bias) {
  const std::string tensor = name + ".bias";
  if (bias == Bias::kNone || (bias == Bias::kOptional && !loader.Has(tensor))) return {};
  return loader.Table(tensor, rows, 1, shard);
}

// Heads [begin, end) as few runs of neighbours in the order of the file: fn(first head, its place,
// heads).
template <typename Fn>
void ForHeadRuns(const std::vector<int64_t>& stored, int64_t begin, int64_t end, Fn fn) {
  const auto place = [&](int64_t head) { return stored[static_cast<size_t>(head)]; };
  for (int64_t first = begin, next = begin; first < end; first = next) {
    while (next < end && place(next) == place(first) + next - first) ++next;
    fn(first, place(first), next - first);
  }
}

F32View Columns(F32View x, Interval part) {
  return {x.data + part.begin, x.rows, part.size(), x.stride};
}

}  // namespace

void BlockRotation::InPlace(RankContext& context, F32View x, Backend::Rotation direction) const {
  if (block_ == 0) return;
  context.backend.Rotate(x, signs_->as<float>(), block_, direction, x);
}

InputRotation::InputRotation(WeightLoader& loader, std::initializer_list<std::string> weights,
                             int64_t width, Interval part) {
  size_t rotated = 0;
  for (const std::string& weight : weights) rotated += loader.Rotates(weight) ? 1 : 0;
  if (rotated == 0) return;
  if (rotated != weights.size()) {
    std::string names;
    for (const std::string& weight : weights) names += (names.empty() ? "'" : ", '") + weight + "'";
    loader.Fail(BadInput("'prism.hadamard.weight_names' lists some of " + names +
                         ", which share their input; all or none can be rotated"));
    return;
  }
  rotation_ = BlockRotation(loader, width, part);
}

ColumnParallelLinear::ColumnParallelLinear(WeightLoader& loader, const std::string& name,
                                           int64_t rows, int64_t cols, const Shard& shard,
                                           Bias bias)
    : weight_(loader.Matrix(name + ".weight", rows, cols, shard, /*granule=*/0)),
      bias_(LoadBias(loader, name, rows, shard, bias)) {}

RowParallelLinear::RowParallelLinear(WeightLoader& loader, const std::string& name, int64_t rows,
                                     int64_t cols, const Shard& shard, int64_t granule, Bias bias)
    : weight_(loader.Matrix(name + ".weight", rows, cols, shard, granule)),
      bias_(LoadBias(loader, name, rows, Shard::Rows({0, rows}), bias)) {}

Partial RowParallelLinear::Forward(RankContext& context, F32View x, I64View words) const {
  context.seals.Next();
  context.backend.LinearPartial(x, *weight_, context.seals.mine(), words);
  return {words, bias_.as<float>(), context.seals.total()};
}

namespace {

int64_t Width(const HeadColumns& columns) {
  return columns.made.back().end;
}

// The whole rotation blocks around some columns.
Interval Blocks(Interval columns, int64_t block) {
  if (columns.size() == 0) return columns;
  return {columns.begin / block * block, (columns.end + block - 1) / block * block};
}

Interval RotatedColumns(WeightLoader& loader, const HeadOutputLinear::Layout& layout, size_t rank) {
  const HeadColumns& columns = layout.columns;
  return columns.gathered ? Blocks(columns.used[rank], loader.rotation().block())
                          : columns.made[rank];
}

// Columns that are not gathered are those of this rank's heads, wherever the file has them.
Shard HeadShard(const HeadOutputLinear::Layout& layout, size_t rank) {
  if (layout.columns.gathered) return Shard::Cols(layout.columns.used[rank]);
  Shard shard{Axis::kCols, {}};
  const int64_t dim = layout.head_dim;
  const Interval made = layout.columns.made[rank];
  ForHeadRuns(layout.stored, made.begin / dim, made.end / dim,
              [&](int64_t, int64_t place, int64_t heads) {
                shard.parts.push_back({place * dim, (place + heads) * dim});
              });
  return shard;
}

}  // namespace

HeadOutputLinear::HeadOutputLinear(WeightLoader& loader, const std::string& name, int64_t rows,
                                   const Layout& layout, int rank, Bias bias)
    : layout_(layout),
      used_(layout.columns.used[static_cast<size_t>(rank)]),
      rotated_(RotatedColumns(loader, layout, static_cast<size_t>(rank))),
      rotation_(loader, {name + ".weight"}, Width(layout.columns), rotated_),
      linear_(
          loader, name, rows, Width(layout.columns), HeadShard(layout, static_cast<size_t>(rank)),
          loader.rotation().Rotates(name + ".weight") ? RotatedGranule(loader.rotation().block())
                                                      : layout.head_dim,
          bias) {}

HeadOutputLinear::Workspace::Workspace(Backend& backend, const HeadColumns& columns, int64_t tokens)
    : gathered(backend, columns.gathered ? 1 : 0,
               tokens * Width(columns) + std::ssize(columns.made) * kSealFloats),
      whole(backend, tokens, columns.gathered ? Width(columns) : 0),
      counts(columns.made.size()) {}

Partial HeadOutputLinear::Forward(RankContext& context, F32View x, Workspace& workspace,
                                  I64View words) const {
  if (!layout_.columns.gathered) {
    rotation_.InPlace(context, x);
    return linear_.Forward(context, x, words);
  }
  const F32View whole = Gather(context, x, workspace);  // [T, width]
  rotation_.InPlace(context, Columns(whole, rotated_));
  return linear_.Forward(context, Columns(whole, used_), words);
}

// Every rank's heads side by side, in the order of the weight's columns.
F32View HeadOutputLinear::Gather(RankContext& context, F32View x, Workspace& workspace) const {
  const std::vector<Interval>& made = layout_.columns.made;
  const int64_t dim = layout_.head_dim;
  const F32View whole = workspace.whole.Rows(x.rows);
  float* from = workspace.gathered.Rows(1).data;  // [ranks][T, that rank's heads], sealed
  for (size_t rank = 0; rank < made.size(); ++rank) {
    workspace.counts[rank] = x.rows * made[rank].size() + kSealFloats;
  }
  const auto me = static_cast<size_t>(context.comm.world().rank);
  float* mine = from + x.rows * made[me].begin + static_cast<int64_t>(me) * kSealFloats;
  context.seals.Next();
  context.backend.SealPart(x, context.seals.mine(), mine);
  context.comm.AllGather(mine, from, workspace.counts, Element::kFloat32);
  for (size_t rank = 0; rank < made.size(); ++rank) {
    const Interval& part = made[rank];
    const F32View heads{from, x.rows, part.size(), part.size()};
    context.backend.CheckPart(from, x.rows * part.size(), context.seals.of(static_cast<int>(rank)));
    ForHeadRuns(layout_.stored, part.begin / dim, part.end / dim,
                [&](int64_t first, int64_t place, int64_t n) {
                  const int64_t local = first * dim - part.begin;
                  context.backend.Copy(Columns(heads, {local, local + n * dim}),
                                       Columns(whole, {place * dim, (place + n) * dim}));
                });
    from += workspace.counts[rank];
  }
  return whole;
}

void Residual::AddNorm(RankContext& context, const Partial& partial, const RmsNorm& norm,
                       F32View out) const {
  const I64View& words = partial.words;
  context.comm.AllReduceSum(words.data, words.rows * words.stride, Element::kInt64);
  context.backend.AddPartialNorm(x, words, partial.seal, partial.bias, norm.weight(), norm.eps(),
                                 out, row_faults);
}

StreamedEmbedding::StreamedEmbedding(WeightLoader& loader, const std::string& name, int64_t vocab,
                                     int64_t hidden, int64_t tokens)
    : store_(loader.store()), table_(loader.Streamed(name, vocab, hidden)) {
  if (table_ == nullptr) return;
  packed_.resize(static_cast<size_t>(tokens * RowBytes(table_->type, hidden)));
  if (loader.rotation().RotatesEmbedding()) rotation_ = BlockRotation(loader, hidden, {0, hidden});
}

void StreamedEmbedding::Forward(RankContext& context, std::span<const int32_t> tokens,
                                F32View out) {
  const Status read = store_.ReadRows(*table_, tokens, packed_.data());
  if (!read.ok()) context.comm.Abort(read.message());
  context.backend.DecodeRows(table_->type, packed_.data(), out);
  rotation_.InPlace(context, out, Backend::Rotation::kInverse);
}

namespace {

HeadOutputLinear::Layout AttentionOutput(const RankPlan& plan) {
  HeadOutputLinear::Layout layout{plan.config.head_dim, plan.attention_columns, {}};
  for (int64_t head = 0; head < plan.config.q_heads; ++head) layout.stored.push_back(head);
  return layout;
}

Shard HeadRows(Interval heads, int64_t rows) {
  return Shard::Rows(heads.Times(rows));
}

}  // namespace

Attention::Attention(WeightLoader& loader, const std::string& prefix, const RankPlan& plan,
                     const AttentionOptions& options)
    : head_dim_(plan.config.head_dim),
      output_gate_(options.output_gate),
      input_(loader, {prefix + "attn_q.weight", prefix + "attn_k.weight", prefix + "attn_v.weight"},
             plan.config.hidden, {0, plan.config.hidden}),
      q_(loader, prefix + "attn_q", plan.config.q_heads * q_rows(), plan.config.hidden,
         HeadRows(plan.share.q_heads, q_rows()), options.input_bias),
      k_(loader, prefix + "attn_k", plan.config.kv_heads * head_dim_, plan.config.hidden,
         HeadRows(plan.share.kv_heads, head_dim_), options.input_bias),
      v_(loader, prefix + "attn_v", plan.config.kv_heads * head_dim_, plan.config.hidden,
         HeadRows(plan.share.kv_heads, head_dim_), options.input_bias),
      output_(loader, prefix + "attn_output", plan.config.hidden, AttentionOutput(plan), plan.rank,
              options.output_bias) {
  const ModelConfig& config = plan.config;
  if (options.qk_norm) {
    qk_norms_.emplace_back(loader, prefix + "attn_q_norm.weight", head_dim_, config.norm_eps);
    qk_norms_.emplace_back(loader, prefix + "attn_k_norm.weight", head_dim_, config.norm_eps);
  }
  const int64_t group = config.q_heads / config.kv_heads;
  for (int64_t head = plan.share.q_heads.begin; head < plan.share.q_heads.end; ++head) {
    kv_heads_.push_back(static_cast<int32_t>(head / group - plan.share.kv_heads.begin));
  }
}

Attention::Workspace::Workspace(Backend& backend, const RankPlan& plan,
                                const AttentionOptions& options, int64_t tokens)
    : q_gate(backend, tokens,
             options.output_gate ? plan.share.q_heads.size() * 2 * plan.config.head_dim : 0),
      q(backend, tokens, plan.share.q_heads.size() * plan.config.head_dim),
      out(backend, tokens, plan.share.q_heads.size() * plan.config.head_dim),
      k(backend, tokens, plan.share.kv_heads.size() * plan.config.head_dim),
      v(backend, tokens, plan.share.kv_heads.size() * plan.config.head_dim),
      output(backend, plan.attention_columns, tokens) {}

Partial Attention::Forward(RankContext& context, F32View h, const AttentionStep& step,
                           const RopeParams& rope, Workspace& workspace, I64View words) const {
  Backend& backend = context.backend;
  const F32View q = workspace.q.Rows(h.rows), out = workspace.out.Rows(h.rows);  // [T, H * D]
  const F32View k = workspace.k.Rows(h.rows), v = workspace.v.Rows(h.rows);      // [T, G * D]
  const F32View q_gate = output_gate_ ? workspace.q_gate.Rows(h.rows) : q;       // [T, H * 2 D]
  const F32View q_and_gate = SplitRows(q_gate, q_rows());                        // [T * H, 2 D]
  const F32View q_in = Columns(q_and_gate, {0, head_dim_});                      // [T * H, D]
  input_.InPlace(context, h);
  const LinearTask projections[] = {q_.Task(q_gate), k_.Task(k), v_.Task(v)};
  backend.Linear(h, projections);
  if (!qk_norms_.empty()) {
    qk_norms_[0].Forward(context, q_in, SplitRows(q, head_dim_));
    qk_norms_[1].Forward(context, SplitRows(k, head_dim_), SplitRows(k, head_dim_));
  } else if (output_gate_) {
    backend.Copy(q_in, SplitRows(q, head_dim_));
  }
  backend.Rope(q, step.angles, rope);
  backend.Rope(k, step.angles, rope);
  backend.WriteKv(k, v, step.places, step.pages);
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim_));
  backend.PagedAttention(q, kv_heads_, scale, step.places, step.pages, out);
  if (output_gate_) {
    backend.SigmoidMul(Columns(q_and_gate, {head_dim_, 2 * head_dim_}), SplitRows(out, head_dim_));
  }
  return output_.Forward(context, out, workspace.output, words);
}

Mlp::Mlp(WeightLoader& loader, const std::string& prefix, const RankPlan& plan)
    : input_(loader, {prefix + "ffn_gate.weight", prefix + "ffn_up.weight"}, plan.config.hidden,
             {0, plan.config.hidden}),
      gate_(loader, prefix + "ffn_gate", plan.config.ffn, plan.config.hidden,
            Shard::Rows(plan.share.ffn)),
      up_(loader, prefix + "ffn_up", plan.config.ffn, plan.config.hidden,
          Shard::Rows(plan.share.ffn)),
      inner_(loader, {prefix + "ffn_down.weight"}, plan.config.ffn, plan.share.ffn),
      down_(loader, prefix + "ffn_down", plan.config.hidden, plan.config.ffn,
            Shard::Cols(plan.share.ffn), plan.config.ffn_granule) {}

Mlp::Workspace::Workspace(Backend& backend, const RankShare& share, int64_t tokens)
    : gate(backend, tokens, share.ffn.size()), up(backend, tokens, share.ffn.size()) {}

Partial Mlp::Forward(RankContext& context, F32View h, Workspace& workspace, I64View words) const {
  const F32View gate = workspace.gate.Rows(h.rows), up = workspace.up.Rows(h.rows);  // [T, F]
  input_.InPlace(context, h);
  const LinearTask projections[] = {gate_.Task(gate), up_.Task(up)};
  context.backend.Linear(h, projections);
  context.backend.SiluMul(gate, up, gate);
  inner_.InPlace(context, gate);
  return down_.Forward(context, gate, words);
}

namespace {

std::string HeadName(const WeightLoader& loader) {
  return loader.Has("output.weight") ? "output.weight" : "token_embd.weight";
}

}  // namespace

ParallelLMHead::ParallelLMHead(WeightLoader& loader, const ModelConfig& config,
                               const RankShare& share)
    : input_(loader, {HeadName(loader)}, config.hidden, {0, config.hidden}),
      weight_(loader.Matrix(HeadName(loader), config.vocab, config.hidden, Shard::Rows(share.vocab),
                            /*granule=*/0)) {}

void ParallelLMHead::Forward(RankContext& context, F32View h, F32View logits) const {
  if (weight_ == nullptr) return;
  input_.InPlace(context, h);
  const LinearTask task[] = {{weight_.get(), nullptr, logits}};
  context.backend.Linear(h, task);
}

}  // namespace trine
