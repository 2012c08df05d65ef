// Layers: a weight together with its split and its collective. ColumnParallelLinear computes some
// output rows and communicates nothing; RowParallelLinear computes a partial that the next
// Residual::AddNorm sums over ranks; ParallelLMHead leaves the logits sharded. A layer is built
// from a WeightLoader; on a dry backend that is the plan, and Forward is not called.
//
// Letters: T tokens, E hidden width, H query heads and G KV heads of this rank, D head dimension,
// F FFN channels of this rank, V vocabulary rows of this rank.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "src/models/model.h"
#include "src/models/rope.h"

namespace trine {

enum class Bias { kNone, kOptional, kRequired };

// A matrix in backend memory, sized once.
template <typename T>
class Scratch {
 public:
  Scratch() = default;
  Scratch(Backend& backend, int64_t rows, int64_t cols)
      : memory_(backend.Allocate(rows * cols * static_cast<int64_t>(sizeof(T)))), cols_(cols) {}
  MatrixView<T> Rows(int64_t n) const { return {memory_.as<T>(), n, cols_, cols_}; }

 private:
  Buffer memory_;
  int64_t cols_ = 0;
};

// x [T, W] seen as [T * W / width, width], x without gaps.
inline F32View SplitRows(F32View x, int64_t width) {
  return {x.data, x.rows * x.cols / width, width, width};
}

class RmsNorm {
 public:
  RmsNorm(WeightLoader& loader, const std::string& name, int64_t width, float eps)
      : weight_(loader.Vector(name, width)), eps_(eps) {}

  const float* weight() const { return weight_.as<float>(); }
  float eps() const { return eps_; }
  void Forward(RankContext& context, F32View x, F32View out) const {
    context.backend.RmsNorm(x, weight(), eps_, out);
  }

 private:
  Buffer weight_;
  float eps_;
};

// A rotation of columns [part) of `width` with its signs; of nothing unless it is given these.
class BlockRotation {
 public:
  BlockRotation() = default;
  BlockRotation(WeightLoader& loader, int64_t width, Interval part)
      : block_(loader.rotation().block()), signs_(loader.Signs(width, part)) {}

  // x [T, part]
  void InPlace(RankContext& context, F32View x, Backend::Rotation direction) const;

 private:
  int64_t block_ = 0;  // 0: nothing to do
  std::shared_ptr<const Buffer> signs_;
};

// What the weights that share an input want of it: that it be rotated, or nothing. They are either
// all stored rotated or none, and this rank's input is columns [part) of `width`.
class InputRotation {
 public:
  InputRotation(WeightLoader& loader, std::initializer_list<std::string> weights, int64_t width,
                Interval part);

  // x [T, part]
  void InPlace(RankContext& context, F32View x) const {
    rotation_.InPlace(context, x, Backend::Rotation::kForward);
  }

 private:
  BlockRotation rotation_;
};

// Some rows of a [rows, cols] weight "NAME.weight", and of its bias "NAME.bias".
class ColumnParallelLinear {
 public:
  ColumnParallelLinear(WeightLoader& loader, const std::string& name, int64_t rows, int64_t cols,
                       const Shard& shard, Bias bias = Bias::kNone);

  // y [T, shard]: to be run by Backend::Linear, together with others that share the input.
  LinearTask Task(F32View y) const { return {weight_.get(), bias_.as<float>(), y}; }

 private:
  std::unique_ptr<Weight> weight_;
  Buffer bias_;
};

// What a row-parallel layer leaves to be summed over ranks: see kPartialExtraWords.
struct Partial {
  I64View words;      // [T, E + 2]
  const float* bias;  // [E], added once after the sum; or nullptr
  int64_t seal;       // that the sum must have
};

// Some columns of a [rows, cols] weight, with the granule that its sums are rounded at.
class RowParallelLinear {
 public:
  RowParallelLinear(WeightLoader& loader, const std::string& name, int64_t rows, int64_t cols,
                    const Shard& shard, int64_t granule, Bias bias = Bias::kNone);

  // x [T, shard]; the partial lies in `words`.
  Partial Forward(RankContext& context, F32View x, I64View words) const;

 private:
  std::unique_ptr<Weight> weight_;
  Buffer bias_;
};

// A row-parallel weight behind heads, NAME [rows, width]. Where its rotation blocks lie across
// ranks, or its columns in another order than the heads, the heads' outputs of all ranks are
// gathered and rotated, and each rank multiplies a part of its own (HeadColumns).
class HeadOutputLinear {
 public:
  struct Layout {
    int64_t head_dim = 0;
    HeadColumns columns;
    std::vector<int64_t> stored;  // place of every head in the weight's columns
  };
  HeadOutputLinear(WeightLoader& loader, const std::string& name, int64_t rows,
                   const Layout& layout, int rank, Bias bias = Bias::kNone);

  // Buffers of a step, shared by all layers.
  struct Workspace {
    Workspace(Backend& backend, const HeadColumns& columns, int64_t tokens);
    Scratch<float> gathered;      // what all ranks send, if anything is gathered
    Scratch<float> whole;         // [T, width], likewise
    std::vector<int64_t> counts;  // by rank, of the gather
  };

  // x [T, this rank's heads], destroyed.
  Partial Forward(RankContext& context, F32View x, Workspace& workspace, I64View words) const;

 private:
  F32View Gather(RankContext& context, F32View x, Workspace& workspace) const;

  Layout layout_;
  Interval used_, rotated_;  // columns multiplied, and the whole blocks that hold them
  InputRotation rotation_;
  RowParallelLinear linear_;
};

// The residual stream x [T, E] of a step.
struct Residual {
  F32View x;
  std::span<int32_t> row_faults;

  // x += the partial, summed over ranks: the one all-reduce of a block. out = norm(x).
  void AddNorm(RankContext& context, const Partial& partial, const RmsNorm& norm,
               F32View out) const;
};

// The embedding table stays in the file: rows are read as tokens need them.
class StreamedEmbedding {
 public:
  StreamedEmbedding(WeightLoader& loader, const std::string& name, int64_t vocab, int64_t hidden,
                    int64_t tokens);

  // out [T, E]. A read error ends the job: the file was changed under a running model.
  void Forward(RankContext& context, std::span<const int32_t> tokens, F32View out);

 private:
  const WeightStore& store_;
  const TensorInfo* table_;
  BlockRotation rotation_;  // that its rows are stored in
  std::vector<std::byte> packed_;
};

// What attention needs of a step besides its input.
struct AttentionStep {
  const TokenPlaces& places;
  F32View angles;  // [T, rope dims], for this step's positions
  const KvPages& pages;
};

struct AttentionOptions {
  Bias input_bias = Bias::kNone;  // of attn_q, attn_k, attn_v
  Bias output_bias = Bias::kNone;
  bool qk_norm = false;      // RMS norm of every query and key head (qwen3)
  bool output_gate = false;  // attn_q gives q and gate, head by head: out *= sigmoid(gate) (qwen35)
};

// Grouped-query attention over this rank's heads (Ainslie et al. 2023), NAME = "blk.i.".
class Attention {
 public:
  Attention(WeightLoader& loader, const std::string& prefix, const RankPlan& plan,
            const AttentionOptions& options);

  // Buffers of a step, shared by all layers.
  struct Workspace {
    Workspace(Backend& backend, const RankPlan& plan, const AttentionOptions& options,
              int64_t tokens);
    Scratch<float> q_gate;  // [T, H * 2 D], if there is a gate
    Scratch<float> q, out;  // [T, H * D]
    Scratch<float> k, v;    // [T, G * D]
    HeadOutputLinear::Workspace output;
  };

  // h [T, E], destroyed.
  Partial Forward(RankContext& context, F32View h, const AttentionStep& step,
                  const RopeParams& rope, Workspace& workspace, I64View words) const;

 private:
  int64_t q_rows() const { return output_gate_ ? 2 * head_dim_ : head_dim_; }  // of a head

  int64_t head_dim_;
  bool output_gate_;
  std::vector<int32_t> kv_heads_;  // [H]
  InputRotation input_;
  ColumnParallelLinear q_, k_, v_;
  std::vector<RmsNorm> qk_norms_;  // none, or that of q and that of k
  HeadOutputLinear output_;
};

// SwiGLU feed-forward over this rank's channels (Shazeer 2020), NAME = "blk.i.".
class Mlp {
 public:
  Mlp(WeightLoader& loader, const std::string& prefix, const RankPlan& plan);

  struct Workspace {
    Workspace(Backend& backend, const RankShare& share, int64_t tokens);
    Scratch<float> gate, up;  // [T, F]
  };

  // h [T, E], destroyed.
  Partial Forward(RankContext& context, F32View h, Workspace& workspace, I64View words) const;

 private:
  InputRotation input_;
  ColumnParallelLinear gate_, up_;
  InputRotation inner_;
  RowParallelLinear down_;
};

// Rows of the vocabulary; tied to the embedding where the file has no output.weight.
class ParallelLMHead {
 public:
  ParallelLMHead(WeightLoader& loader, const ModelConfig& config, const RankShare& share);

  // h [R, E], destroyed; logits [R, V]
  void Forward(RankContext& context, F32View h, F32View logits) const;

 private:
  InputRotation input_;
  std::unique_ptr<Weight> weight_;  // nullptr if this rank has no rows
};

}  // namespace trine
