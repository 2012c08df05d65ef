// ShardPlan: which part of every weight each rank holds. Pure arithmetic over a model's dimensions:
// no I/O, no device, the same answer on every rank.
//
// Units that are never cut: a query head (with the KV head it needs, replicated where two ranks
// need the same one), a granule of FFN channels, a block of 1024 vocabulary rows. Shares need not
// be even; the plan minimises the largest rank. Scheme: Shoeybi et al. 2019 (Megatron-LM), uneven.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kernels/tensor.h"
#include "src/core/result.h"

namespace trine {

inline constexpr int64_t kVocabBlock = 1024;

// Half open.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  Interval Times(int64_t unit) const { return {begin * unit, end * unit}; }
};

// One rank's part of one tensor: some rows, or some columns of every row, or all of it.
enum class Axis { kRows, kCols };
struct Shard {
  Axis axis = Axis::kRows;
  std::vector<Interval> parts;  // disjoint, along the axis, in the order that the model wants

  static Shard Rows(Interval rows) { return {Axis::kRows, {rows}}; }
  static Shard Cols(Interval cols) { return {Axis::kCols, {cols}}; }
  int64_t size() const;
};

// What the plan needs to know of a model. Layers, hidden and head dimensions weigh the units
// against each other.
struct ShardDims {
  int64_t q_heads = 0;
  int64_t kv_heads = 0;  // divides q_heads; query head j uses KV head j * kv_heads / q_heads
  int64_t head_dim = 1;
  int64_t q_rows = 1;  // of attn_q, per head: head_dim, or twice that with a gate
  int64_t attention_layers = 1;
  int64_t key_heads = 0;  // of Gated DeltaNet, value_heads / key_heads value heads with each
  int64_t value_heads = 0;
  int64_t delta_dim = 1;
  int64_t delta_layers = 0;
  int64_t ffn = 0;          // FFN channels
  int64_t ffn_granule = 0;  // channels per granule; the last may be shorter
  int64_t vocab = 0;
  int64_t hidden = 1;
  int64_t rotation = 0;             // columns of a rotation block
  bool rotated_attention = false;   // attn_output is rotated
  bool rotated_delta = false;       // ssm_out is
  bool delta_out_of_order = false;  // and its columns are not in the model's order
  int64_t layers() const { return attention_layers + delta_layers; }
};

// Who makes the columns that a row-parallel weight behind heads multiplies, and who multiplies
// them, by rank. They differ where rotation blocks would lie across ranks: then every rank gathers
// all columns, rotates, and multiplies a part of its own.
struct HeadColumns {
  std::vector<Interval> made;
  std::vector<Interval> used;  // may be empty
  bool gathered = false;
};

// One rank's shares, in heads, channels and rows of the vocabulary.
struct RankShare {
  Interval q_heads;
  Interval kv_heads;
  Interval key_heads;  // empty if the model has none
  Interval ffn;
  Interval vocab;  // may be empty
};

class ShardPlan {
 public:
  // weights: one positive number a rank, its wanted share of the work; empty: equal. Fails with the
  // unit that is too few and the rank counts that work.
  static Result<ShardPlan> Make(const ShardDims& dims, int ranks, std::span<const double> weights);

  // All rank counts from 1 to this one can share the model.
  static int MostRanks(const ShardDims& dims);

  int ranks() const { return static_cast<int>(shares_.size()); }
  const RankShare& share(int rank) const { return shares_[static_cast<size_t>(rank)]; }
  const HeadColumns& attention_columns() const { return attention_columns_; }
  const HeadColumns& delta_columns() const { return delta_columns_; }

 private:
  std::vector<RankShare> shares_;
  HeadColumns attention_columns_, delta_columns_;
};

// The granule of an unrotated ffn_down: the largest of 256, 128, 64, 32 that is no smaller than the
// quant block and leaves at least 16 granules; failing that, the smallest that is no smaller than
// the block. Two-bit formats count as blocks of 128, so that packings of the same codes agree, or
// of 64 where 128 does not divide the channels.
int64_t FfnGranule(int64_t ffn, DType type);

// The granule of rotated head outputs: 128, or a whole smaller rotation block.
int64_t RotatedGranule(int64_t rotation);

// Cuts [0, units) into one interval per rank so that the largest (load + cost(interval)) / weight
// is least, and among those the sum of squares; adds the costs to `load`. Every interval is
// non-empty if there are enough units, unless `may_be_empty`. Takes ranks * units^2 steps.
std::vector<Interval> PartitionUnits(int64_t units, std::span<const double> weights,
                                     std::span<double> load, bool may_be_empty,
                                     const std::function<double(Interval)>& cost);

}  // namespace trine
