// Layers: a weight together with its split and its collective. ColumnParallelLinear computes some
// output rows and communicates nothing; RowParallelLinear computes a partial that the next
// Residual::AddNorm sums over ranks; ParallelLMHead leaves the logits sharded. A layer is built
// from a WeightLoader, which may only be planning: then it holds no memory and Forward is not
// called.
//
// Letters: T tokens, E hidden width, H query heads and G KV heads of this rank, D head dimension,
// F FFN channels of this rank, V vocabulary rows of this rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/models/model.h"
#include "src/models/rope.h"

namespace trine {

enum class Bias { kNone, kOptional, kRequired };

// A matrix in backend memory, sized once. Empty when planning.
template <typename T>
class Scratch {
 public:
  Scratch() = default;
  Scratch(RankContext* context, int64_t rows, int64_t cols) : cols_(cols) {
    if (context != nullptr) {
      memory_ = context->backend.Allocate(rows * cols * static_cast<int64_t>(sizeof(T)));
    }
  }
  MatrixView<T> Rows(int64_t n) const { return {memory_.as<T>(), n, cols_, cols_}; }

 private:
  Buffer memory_;
  int64_t cols_ = 0;
};

class RmsNorm {
 public:
  RmsNorm(WeightLoader& loader, const std::string& name, int64_t width, float eps)
      : weight_(loader.Vector(name, width, {0, width})), eps_(eps) {}

  const float* weight() const { return weight_.as<float>(); }
  float eps() const { return eps_; }
  void Forward(RankContext& context, F32View x, F32View out) const {
    context.backend.RmsNorm(x, weight(), eps_, out);
  }

 private:
  Buffer weight_;
  float eps_;
};

// Rows [part) of a [rows, cols] weight "NAME.weight", and of its bias "NAME.bias".
class ColumnParallelLinear {
 public:
  ColumnParallelLinear(WeightLoader& loader, const std::string& name, int64_t rows, int64_t cols,
                       Interval part, Bias bias);

  // y [T, part]: to be run by Backend::Linear, together with others that share the input.
  LinearTask Task(F32View y) const { return {weight_.get(), bias_.as<float>(), y}; }

 private:
  std::unique_ptr<Weight> weight_;
  Buffer bias_;
};

// What a row-parallel layer leaves to be summed over ranks: see kPartialExtraWords.
struct Partial {
  I64View words;      // [T, E + 2]
  const float* bias;  // [E], added once after the sum; or nullptr
};

// Columns [part) of a [rows, cols] weight, with the granule that its sums are rounded at.
class RowParallelLinear {
 public:
  RowParallelLinear(WeightLoader& loader, const std::string& name, int64_t rows, int64_t cols,
                    Interval part, int64_t granule, Bias bias);

  // x [T, part]; the partial lies in `words`.
  Partial Forward(RankContext& context, F32View x, I64View words) const;

 private:
  std::unique_ptr<Weight> weight_;
  Buffer bias_;
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
  StreamedEmbedding(WeightLoader& loader, const WeightStore& store, const std::string& name,
                    int64_t vocab, int64_t hidden, RankContext* context);

  // out [T, E]. A read error ends the job: the file was changed under a running model.
  void Forward(RankContext& context, std::span<const int32_t> tokens, F32View out);

 private:
  const WeightStore& store_;
  const TensorInfo* table_;
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
  bool qk_norm = false;  // RMS norm of every query and key head (qwen3)
};

// Grouped-query attention over this rank's heads (Ainslie et al. 2023), NAME = "blk.i.".
class Attention {
 public:
  Attention(WeightLoader& loader, const std::string& prefix, const ModelConfig& config,
            const RankShare& share, const AttentionOptions& options);

  // Buffers of a step, shared by all layers.
  struct Workspace {
    Workspace(RankContext* context, const ModelConfig& config, const RankShare& share,
              int64_t tokens);
    Scratch<float> q, out;  // [T, H * D]
    Scratch<float> k, v;    // [T, G * D]
  };

  // h [T, E]
  Partial Forward(RankContext& context, F32View h, const AttentionStep& step,
                  const RopeParams& rope, Workspace& workspace, I64View words) const;

 private:
  int64_t head_dim_;
  std::vector<int32_t> kv_heads_;  // [H]
  ColumnParallelLinear q_, k_, v_;
  std::vector<RmsNorm> qk_norms_;  // none, or that of q and that of k
  RowParallelLinear output_;
};

// SwiGLU feed-forward over this rank's channels (Shazeer 2020), NAME = "blk.i.".
class Mlp {
 public:
  Mlp(WeightLoader& loader, const std::string& prefix, const ModelConfig& config,
      const RankShare& share);

  struct Workspace {
    Workspace(RankContext* context, const RankShare& share, int64_t tokens);
    Scratch<float> gate, up;  // [T, F]
  };

  // h [T, E]
  Partial Forward(RankContext& context, F32View h, Workspace& workspace, I64View words) const;

 private:
  ColumnParallelLinear gate_, up_;
  RowParallelLinear down_;
};

// Rows of the vocabulary; tied to the embedding where the file has no output.weight.
class ParallelLMHead {
 public:
  ParallelLMHead(WeightLoader& loader, const ModelConfig& config, const RankShare& share);

  // h [R, E], logits [R, V]
  void Forward(RankContext& context, F32View h, F32View logits) const;

 private:
  std::unique_ptr<Weight> weight_;  // nullptr if this rank has no rows
};

}  // namespace trine
