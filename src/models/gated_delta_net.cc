#include "src/models/gated_delta_net.h"

#include <cmath>

namespace trine {
namespace {

// Rows of this rank's value heads, `rows` a head, behind `before` other rows.
void AddValueHeads(const RankPlan& plan, ValueHeadOrder order, int64_t rows, int64_t before,
                   Shard& shard) {
  const int64_t rep = plan.config.value_heads / plan.config.key_heads;
  const Interval heads = plan.share.key_heads.Times(rep);
  for (int64_t head = heads.begin; head < heads.end; ++head) {
    const int64_t begin =
        before +
        StoredValueHead(order, plan.config.key_heads, plan.config.value_heads, head) * rows;
    if (!shard.parts.empty() && shard.parts.back().end == begin) {
      shard.parts.back().end += rows;
    } else {
      shard.parts.push_back({begin, begin + rows});
    }
  }
}

Shard ValueHeads(const RankPlan& plan, ValueHeadOrder order, int64_t rows) {
  Shard shard{Axis::kRows, {}};
  AddValueHeads(plan, order, rows, /*before=*/0, shard);
  return shard;
}

// Rows of q, k and v, one after another in the file.
Shard Channels(const RankPlan& plan, ValueHeadOrder order) {
  const int64_t dim = plan.config.delta_dim, keys = plan.config.key_heads * dim;
  const Interval mine = plan.share.key_heads.Times(dim);
  Shard shard{Axis::kRows, {mine, {keys + mine.begin, keys + mine.end}}};
  AddValueHeads(plan, order, dim, 2 * keys, shard);
  return shard;
}

int64_t AllChannels(const ModelConfig& config) {
  return (2 * config.key_heads + config.value_heads) * config.delta_dim;
}

// The columns of a rotated ssm_out may be grouped where all else is tiled.
HeadOutputLinear::Layout Output(const RankPlan& plan, WeightLoader& loader,
                                const std::string& name) {
  ValueHeadOrder order = loader.store().conventions().value_heads;
  if (loader.rotation().Rotates(name + ".weight") && loader.rotation().delta_grouped()) {
    order = ValueHeadOrder::kGrouped;
  }
  HeadOutputLinear::Layout layout{plan.config.delta_dim, plan.delta_columns, {}};
  for (int64_t head = 0; head < plan.config.value_heads; ++head) {
    layout.stored.push_back(
        StoredValueHead(order, plan.config.key_heads, plan.config.value_heads, head));
  }
  return layout;
}

Buffer Constants(Backend& backend, int64_t n, float value) {
  const std::vector<float> values(static_cast<size_t>(n), value);
  Buffer buffer = backend.Allocate(n * 4);
  backend.Upload(values.data(), n * 4, buffer.as());
  return buffer;
}

}  // namespace

DeltaLayout GatedDeltaNet::Layout(const RankPlan& plan) {
  const ModelConfig& config = plan.config;
  if (config.recurrent_layers() == 0) return {};
  const int64_t heads = plan.share.key_heads.size();
  return {heads, heads * (config.value_heads / config.key_heads), config.delta_dim,
          config.conv_taps};
}

// L2 norms are RMS norms: x / sqrt(sum x^2 + eps) = RmsNorm(x, eps / D) / sqrt(D). The query's
// scale 1 / sqrt(D) is a factor more.
GatedDeltaNet::GatedDeltaNet(WeightLoader& loader, const std::string& prefix, const RankPlan& plan)
    : layout_(Layout(plan)),
      norm_eps_(plan.config.norm_eps),
      alpha_(loader, prefix + "ssm_alpha", plan.config.value_heads, plan.config.hidden,
             ValueHeads(plan, loader.store().conventions().value_heads, 1)),
      beta_(loader, prefix + "ssm_beta", plan.config.value_heads, plan.config.hidden,
            ValueHeads(plan, loader.store().conventions().value_heads, 1)),
      input_(loader, {prefix + "attn_qkv.weight", prefix + "attn_gate.weight"}, plan.config.hidden,
             {0, plan.config.hidden}),
      qkv_(loader, prefix + "attn_qkv", AllChannels(plan.config), plan.config.hidden,
           Channels(plan, loader.store().conventions().value_heads)),
      gate_(loader, prefix + "attn_gate", plan.config.value_heads * layout_.head_dim,
            plan.config.hidden,
            ValueHeads(plan, loader.store().conventions().value_heads, layout_.head_dim)),
      conv_(loader.Table(prefix + "ssm_conv1d.weight", AllChannels(plan.config), layout_.taps,
                         Channels(plan, loader.store().conventions().value_heads))),
      rate_(loader.Table(prefix + "ssm_a", plan.config.value_heads, 1,
                         ValueHeads(plan, loader.store().conventions().value_heads, 1))),
      bias_(loader.Table(prefix + "ssm_dt.bias", plan.config.value_heads, 1,
                         ValueHeads(plan, loader.store().conventions().value_heads, 1))),
      q_norm_(Constants(loader.backend(), layout_.head_dim,
                        1.0f / static_cast<float>(layout_.head_dim))),
      k_norm_(Constants(loader.backend(), layout_.head_dim,
                        1.0f / std::sqrt(static_cast<float>(layout_.head_dim)))),
      norm_(loader, prefix + "ssm_norm.weight", layout_.head_dim, norm_eps_),
      output_(loader, prefix + "ssm_out", plan.config.hidden,
              Output(plan, loader, prefix + "ssm_out"), plan.rank) {}

GatedDeltaNet::Workspace::Workspace(Backend& backend, const RankPlan& plan, int64_t tokens)
    : qkv(backend, tokens, Layout(plan).channels()),
      z(backend, tokens, Layout(plan).value_heads * plan.config.delta_dim),
      out(backend, tokens, Layout(plan).value_heads * plan.config.delta_dim),
      decay(backend, tokens, Layout(plan).value_heads),
      beta(backend, tokens, Layout(plan).value_heads),
      output(backend, plan.delta_columns, tokens) {}

Partial GatedDeltaNet::Forward(RankContext& context, F32View h, const TokenPlaces& places,
                               const DeltaStates& states, Workspace& workspace,
                               I64View words) const {
  Backend& backend = context.backend;
  const int64_t dim = layout_.head_dim, keys = layout_.key_heads * dim;
  const F32View qkv = workspace.qkv.Rows(h.rows);                                // [T, C]
  const F32View z = workspace.z.Rows(h.rows), out = workspace.out.Rows(h.rows);  // [T, V * D]
  const F32View decay = workspace.decay.Rows(h.rows);                            // [T, V]
  const F32View beta = workspace.beta.Rows(h.rows);                              // [T, V]
  const LinearTask gates[] = {alpha_.Task(decay), beta_.Task(beta)};
  backend.Linear(h, gates);
  input_.InPlace(context, h);
  const LinearTask projections[] = {qkv_.Task(qkv), gate_.Task(z)};
  backend.Linear(h, projections);

  backend.CausalConvSilu(qkv, conv_.as<float>(), places, states);
  const float eps = norm_eps_ / static_cast<float>(dim);
  for (int64_t head = 0; head < layout_.key_heads; ++head) {
    const F32View q{qkv.data + head * dim, qkv.rows, dim, qkv.stride};         // [T, D]
    const F32View k{qkv.data + keys + head * dim, qkv.rows, dim, qkv.stride};  // [T, D]
    backend.RmsNorm(q, q_norm_.as<float>(), eps, q);
    backend.RmsNorm(k, k_norm_.as<float>(), eps, k);
  }
  backend.DeltaGates(decay, beta, rate_.as<float>(), bias_.as<float>());
  backend.GatedDeltaRule(qkv, decay, beta, places, states, out);
  norm_.Forward(context, SplitRows(out, dim), SplitRows(out, dim));
  backend.SiluMul(z, out, out);
  return output_.Forward(context, out, workspace.output, words);
}

}  // namespace trine
