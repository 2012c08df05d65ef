#include "src/weights/shard_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace trine {
namespace {

Interval KvHeadsOf(const ShardDims& dims, Interval q) {
  const int64_t group = dims.q_heads / dims.kv_heads;
  return {q.begin / group, (q.end - 1) / group + 1};
}

int64_t Granules(const ShardDims& dims) {
  return (dims.ffn + dims.ffn_granule - 1) / dims.ffn_granule;
}

Status TooManyRanks(const ShardDims& dims, const std::string& unit, int ranks) {
  const int most = ShardPlan::MostRanks(dims);
  return BadInput(unit + " cannot be shared by " + std::to_string(ranks) + " ranks; use 1 to " +
                  std::to_string(most) + " ranks");
}

// Of any kind: sharing takes units^2 steps. No model comes near.
constexpr int64_t kMostUnits = 4096;

int64_t RotatedUnits(bool rotated, int64_t columns, int64_t rotation) {
  return rotated ? columns / RotatedGranule(rotation) : 0;
}

Status CheckUnits(const ShardDims& dims, int ranks) {
  const std::pair<int64_t, const char*> counts[] = {
      {dims.q_heads, "query heads"},
      {dims.key_heads, "key heads"},
      {Granules(dims), "granules of FFN channels"},
      {(dims.vocab + kVocabBlock - 1) / kVocabBlock, "blocks of vocabulary rows"},
      {RotatedUnits(dims.rotated_attention, dims.q_heads * dims.head_dim, dims.rotation),
       "granules of rotated attention outputs"},
      {RotatedUnits(dims.rotated_delta, dims.value_heads * dims.delta_dim, dims.rotation),
       "granules of rotated value heads"}};
  for (const auto& [count, what] : counts) {
    if (count <= kMostUnits) continue;
    return BadInput("the model has " + std::to_string(count) + " " + what + "; at most " +
                    std::to_string(kMostUnits) + " are supported");
  }
  if (ranks > dims.q_heads) {
    return TooManyRanks(dims, "attn_q: " + std::to_string(dims.q_heads) + " query heads", ranks);
  }
  if (dims.delta_layers > 0 && ranks > dims.key_heads) {
    return TooManyRanks(dims, "attn_qkv: " + std::to_string(dims.key_heads) + " key heads", ranks);
  }
  if (ranks > Granules(dims)) {
    return TooManyRanks(dims,
                        "ffn_down: " + std::to_string(Granules(dims)) + " granules of " +
                            std::to_string(dims.ffn_granule) + " channels",
                        ranks);
  }
  return {};
}

// Sets `used` and `gathered`. rotation: columns of a block, 0 if the weight is not rotated.
void CutColumns(std::span<const double> weights, int64_t rotation, bool out_of_order,
                HeadColumns& columns) {
  columns.used = columns.made;
  if (rotation == 0) return;
  const int64_t granule = RotatedGranule(rotation), whole = std::max(granule, rotation);
  columns.gathered =
      out_of_order || std::any_of(columns.made.begin(), columns.made.end(),
                                  [&](const Interval& part) { return part.begin % whole != 0; });
  if (!columns.gathered) return;
  std::vector<double> load(weights.size(), 0);
  columns.used = PartitionUnits(columns.made.back().end / granule, weights, load,
                                /*may_be_empty=*/true,
                                [](Interval part) { return static_cast<double>(part.size()); });
  for (Interval& part : columns.used) part = part.Times(granule);
}

}  // namespace

int64_t Shard::size() const {
  int64_t total = 0;
  for (const Interval& part : parts) total += part.size();
  return total;
}

std::vector<Interval> PartitionUnits(int64_t units, std::span<const double> weights,
                                     std::span<double> load, bool may_be_empty,
                                     const std::function<double(Interval)>& cost) {
  // best[r][u]: the least (largest, squares) of ranks [0, r) sharing units [0, u).
  using Score = std::pair<double, double>;
  const auto ranks = static_cast<int64_t>(weights.size());
  const int64_t least = units >= ranks && !may_be_empty ? 1 : 0;
  const Score unreachable{std::numeric_limits<double>::infinity(), 0};
  std::vector<std::vector<Score>> best(weights.size() + 1);
  std::vector<std::vector<int64_t>> cut(weights.size() + 1);
  for (auto& row : best) row.assign(static_cast<size_t>(units) + 1, unreachable);
  for (auto& row : cut) row.assign(static_cast<size_t>(units) + 1, 0);
  best[0][0] = {0, 0};
  for (size_t r = 1; r <= weights.size(); ++r) {
    for (int64_t end = 0; end <= units; ++end) {
      for (int64_t begin = 0; begin + least <= end; ++begin) {
        const Score& before = best[r - 1][static_cast<size_t>(begin)];
        if (before.first == unreachable.first) continue;
        const double added = begin == end ? 0 : cost({begin, end});
        const double c = (load[r - 1] + added) / weights[r - 1];
        const Score score{std::max(before.first, c), before.second + c * c};
        if (score < best[r][static_cast<size_t>(end)]) {
          best[r][static_cast<size_t>(end)] = score;
          cut[r][static_cast<size_t>(end)] = begin;
        }
      }
    }
  }
  std::vector<Interval> parts(weights.size());
  int64_t end = units;
  for (size_t r = weights.size(); r > 0; --r) {
    parts[r - 1] = {cut[r][static_cast<size_t>(end)], end};
    end = parts[r - 1].begin;
    if (parts[r - 1].size() > 0) load[r - 1] += cost(parts[r - 1]);
  }
  return parts;
}

int ShardPlan::MostRanks(const ShardDims& dims) {
  const int64_t most = std::min(dims.q_heads, Granules(dims));
  return static_cast<int>(dims.delta_layers == 0 ? most : std::min(most, dims.key_heads));
}

Result<ShardPlan> ShardPlan::Make(const ShardDims& dims, int ranks,
                                  std::span<const double> weights) {
  const std::vector<double> even(static_cast<size_t>(ranks), 1.0);
  if (weights.empty()) weights = even;
  if (std::ssize(weights) != ranks) {
    return BadInput("--split has " + std::to_string(weights.size()) + " numbers for " +
                    std::to_string(ranks) + " ranks; give one a rank");
  }
  TRINE_RETURN_IF_ERROR(CheckUnits(dims, ranks));
  // In values of weights. A query head: its rows of attn_q and its columns of attn_output; a KV
  // head: its rows of attn_k and attn_v; a key head: its rows q and k and, for its value heads, v,
  // the gate and the columns of ssm_out; a channel: two rows and a column. Heads and channels
  // first: they are in every layer.
  const auto values = [&](int64_t rows) {
    return static_cast<double>(rows) * static_cast<double>(dims.hidden);
  };
  std::vector<double> load(weights.size(), 0);
  const auto heads =
      PartitionUnits(dims.q_heads, weights, load, /*may_be_empty=*/false, [&](Interval q) {
        return values(dims.attention_layers * (q.size() * (dims.q_rows + dims.head_dim) +
                                               2 * KvHeadsOf(dims, q).size() * dims.head_dim));
      });
  const int64_t rep = dims.delta_layers == 0 ? 0 : dims.value_heads / dims.key_heads;
  const auto key_heads = PartitionUnits(
      dims.key_heads, weights, load, /*may_be_empty=*/dims.delta_layers == 0, [&](Interval part) {
        return values(dims.delta_layers * dims.delta_dim * part.size() * (2 + 3 * rep));
      });
  const auto granules = PartitionUnits(
      Granules(dims), weights, load, /*may_be_empty=*/false,
      [&](Interval part) { return values(3 * dims.layers() * part.size() * dims.ffn_granule); });
  const auto blocks = PartitionUnits(
      (dims.vocab + kVocabBlock - 1) / kVocabBlock, weights, load,
      /*may_be_empty=*/true, [&](Interval part) { return values(part.size() * kVocabBlock); });

  ShardPlan plan;
  for (size_t r = 0; r < weights.size(); ++r) {
    RankShare share{heads[r], KvHeadsOf(dims, heads[r]), key_heads[r],
                    granules[r].Times(dims.ffn_granule), blocks[r].Times(kVocabBlock)};
    share.ffn.end = std::min(share.ffn.end, dims.ffn);
    share.vocab.begin = std::min(share.vocab.begin, dims.vocab);
    share.vocab.end = std::min(share.vocab.end, dims.vocab);
    plan.shares_.push_back(share);
    plan.attention_columns_.made.push_back(heads[r].Times(dims.head_dim));
    plan.delta_columns_.made.push_back(key_heads[r].Times(rep * dims.delta_dim));
  }
  CutColumns(weights, dims.rotated_attention ? dims.rotation : 0, /*out_of_order=*/false,
             plan.attention_columns_);
  CutColumns(weights, dims.rotated_delta ? dims.rotation : 0, dims.delta_out_of_order,
             plan.delta_columns_);
  return plan;
}

int64_t FfnGranule(int64_t ffn, DType type) {
  int64_t least = std::max(Info(type).block_elems, 32);
  if (IsTernary(type)) least = ffn % 128 == 0 ? 128 : 64;
  if (least == 64 && IsTernary(type)) return least;  // an activation group never ends short
  int64_t granule = 256;
  while (granule / 2 >= least && (ffn + granule - 1) / granule < 16) granule /= 2;
  return granule;
}

int64_t RotatedGranule(int64_t rotation) {
  return std::min<int64_t>(rotation, 128);
}

}  // namespace trine
