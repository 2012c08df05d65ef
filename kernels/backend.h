// Backend: every operation a model is made of, on one page. It takes views and pointers, and knows
// no rank, file, weight name or model. Activations are f32, row-major, contiguous along a row.
//
// Letters: T tokens of a step, S sequences, H query heads, D head dimension, K input width,
// N output width, V this rank's vocabulary rows.
//
// Numeric contract (CPU): a result depends on its own row of x and on the weight alone, never on
// batch, threads or instruction set. A matrix row is summed over k = 0, 1, ... with fused
// multiply-adds; block formats multiply integer activations, whose products are exact: 16 bits with
// one f32 scale per 32 columns, two-bit formats 8 bits with one per 128 (fewer columns where a
// granule is narrower).
//
// Memory belongs to the caller unless an object is returned. Outputs may not overlap inputs unless
// said otherwise. Calls return when the result is in place. Scratch grows to the largest step seen
// and is kept. Nothing fails: shapes are the caller's to get right, they are not checked here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/log_sum_exp.h"
#include "kernels/tensor.h"

namespace trine {

// Memory made by a Backend; move-only, freed on destruction. Zeroed, aligned to 64 bytes.
class Buffer {
 public:
  using Free = void (*)(void* data, int64_t bytes);

  Buffer() = default;
  Buffer(void* data, int64_t bytes, Free free) : data_(data), bytes_(bytes), free_(free) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(free_, other.free_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) free_(data_, bytes_);
  }

  template <typename T = std::byte>
  T* as() const {
    return static_cast<T*>(data_);
  }
  int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  Free free_ = nullptr;
};

// Columns that lie side by side in the file; the blocks that hold them are stored whole.
struct ColumnRun {
  int64_t skip = 0;  // columns at the start of the first block that are not ours
  int64_t cols = 0;

  int64_t stored_cols(DType type) const {
    const int64_t block = Info(type).block_elems;
    return cols == 0 ? 0 : (skip + cols + block - 1) / block * block;
  }
};

// This rank's part of one matrix [N, K], as it is stored in the file.
struct WeightDesc {
  DType type = DType::kF32;
  int64_t rows = 0;             // N
  std::vector<ColumnRun> runs;  // the K columns, in order; borders lie between granules
  int64_t granule = 0;  // row parallel: columns per granule, the first starting at column 0;
                        // 0: column parallel

  int64_t cols() const;         // K
  int64_t stored_cols() const;  // of whole blocks, per row
};

// How a weight is kept and multiplied, in words. reason: why it is wider or slower than its type
// could be; empty if it is not.
struct WeightKernel {
  std::string layout;      // "2-bit panels"
  std::string arithmetic;  // "int8 activations, groups of 128"
  std::string reason;
  bool operator==(const WeightKernel&) const = default;
};

// An opaque handle: the backend keeps the matrix in a layout of its own.
class Weight {
 public:
  explicit Weight(const WeightDesc& desc) : desc_(desc) {}
  virtual ~Weight() = default;
  const WeightDesc& desc() const { return desc_; }
  virtual int64_t bytes() const = 0;  // of memory
  virtual WeightKernel kernel() const = 0;

 private:
  WeightDesc desc_;
};

inline int64_t WeightDesc::cols() const {
  int64_t total = 0;
  for (const ColumnRun& run : runs) total += run.cols;
  return total;
}
inline int64_t WeightDesc::stored_cols() const {
  int64_t total = 0;
  for (const ColumnRun& run : runs) total += run.stored_cols(type);
  return total;
}

// Copies the stored bytes of rows [first, first + n) to out, n * RowBytes(stored_cols()). False
// ends the load (the caller knows why). Called from several threads at once.
using RowReader = std::function<bool(int64_t first, int64_t n, std::byte* out)>;

struct LoadedWeight {
  std::unique_ptr<Weight> weight;  // nullptr if the reader failed or a value is not finite
  bool finite = true;
};

// y [T, N] = x W^T (+ bias [N], unless nullptr).
struct LinearTask {
  const Weight* weight;
  const float* bias;
  F32View y;
};

// A granule partial as it travels: each row holds N sums of granules, each granule's f32 rounded to
// an integer at scale 2^28, then a flag word (granules that were not finite or >= 2^22), then a seal
// minus the sum of all words before it. Sums of such rows over ranks are exact in any order, and add
// up to the sum of their seals: numbers that mean nothing here (comm/seals.h).
inline constexpr int64_t kPartialExtraWords = 2;
inline constexpr int64_t kSealFloats = 2;  // behind a gathered part, the bits of a checksum

// A checksum that cannot be right: what the ranks sent each other was lost, old or changed.
struct Breach {
  bool seen = false;
  int64_t seal = 0;        // that was expected
  int64_t difference = 0;  // of what was found from it, modulo 2^64
};
inline constexpr double kPartialScale = 0x1p28;
inline constexpr float kPartialLimit = 0x1p22f;

enum class RopePairs { kHalves, kAdjacent };  // (i, i + n/2) or (2i, 2i + 1)

struct RopeParams {
  RopePairs pairs = RopePairs::kHalves;
  int64_t head_dim = 0;
  int64_t dims = 0;                    // rotated dimensions, the first of each head
  const float* frequencies = nullptr;  // [dims / 2] radians per position, backend memory
  float magnitude = 1;                 // factor on cos and sin
};

// Which sequence and place each token of a step has, and where its sequence's past lies. The tokens
// of a sequence are neighbours, in order of position.
struct TokenPlaces {
  std::span<const int32_t> positions = {};    // [T] from 0
  std::span<const int32_t> sequences = {};    // [T] index into page_indptr, ascending
  std::span<const int32_t> page_indptr = {};  // [S + 1] into pages
  std::span<const int32_t> pages = {};        // page ids of every sequence, in order of position
  std::span<const int32_t> slots = {};        // [S] of the recurrent state
  // Speculation (Leviathan et al. 2023). Drafts are guessed tokens that may prove wrong: the last
  // of a sequence in the step, but never all. accepted: how many drafts of the slot's last step,
  // the first of them, proved right; this step's tokens come after those. An empty span means none.
  std::span<const int32_t> drafts = {};    // [S]
  std::span<const int32_t> accepted = {};  // [S] 0 where the sequence begins, at position 0
};

inline constexpr int64_t kMaxHeadDim = 512;

// kQ8_0: as ggml's blocks of Q8_0, within a token's head: codes of 32 d, or of what is left of D,
// and an f16 scale. A value that is not finite makes its group's scale NaN. Attention is that over
// the values that codes times scale give.
enum class KvType { kF16, kQ8_0, kF32 };

// Tokens per KV page, and keys per tile of the softmax: tiles start at position 0, so the order of
// summation depends on the position alone.
inline constexpr int64_t kPageTokens = 32;

struct KvLayout {
  int64_t heads = 0;  // KV heads of this rank
  int64_t head_dim = 0;
  KvType type = KvType::kF16;
};

// The pages of one layer. Their inner layout is the backend's.
struct KvPages {
  std::byte* data = nullptr;
  KvLayout layout;
};

// The recurrent state of Gated DeltaNet (Yang et al. 2024), one layer's slots side by side. Slot s:
// conv + s * conv_floats(): [taps - 1][channels], the inputs before the next token, oldest first;
// delta + s * delta_floats(): [value heads][D key rows][D], one matrix a head. A slot's first
// token, at position 0, finds both as if they were zero.
//
// Both are those after the last token of the slot's last step that was no draft. What the drafts of
// that step fed the recurrence is kept beside them, in log + s * log_floats(): [drafts][log_row()].
// The sequence's next step first does with the accepted ones what it would have done with tokens,
// so that its bits are those of one certain token after the other.
struct DeltaLayout {
  int64_t key_heads = 0;    // of this rank
  int64_t value_heads = 0;  // a multiple: value head v uses key head v * key_heads / value_heads
  int64_t head_dim = 0;     // D, of keys and values, up to kMaxHeadDim
  int64_t taps = 0;         // of the convolution
  int64_t drafts = 0;       // of a sequence in a step at most; 0: there is no log

  int64_t channels() const { return (2 * key_heads + value_heads) * head_dim; }
  int64_t conv_floats() const { return (taps - 1) * channels(); }
  int64_t delta_floats() const { return value_heads * head_dim * head_dim; }
  // A draft: the inputs of the convolution, then k and v that came of it, decay and beta.
  int64_t log_row() const { return 2 * channels() - key_heads * head_dim + 2 * value_heads; }
  int64_t log_floats() const { return drafts * log_row(); }
};
inline constexpr int64_t kMaxConvTaps = 8;
struct DeltaStates {
  float* conv = nullptr;
  float* delta = nullptr;
  DeltaLayout layout;
  float* log = nullptr;  // of the slots that have drafts
};

// What happens to a token's logit before it is ranked: the bias is added, then come the penalties
// if the token was seen. A bias of -infinity bans it.
struct LogitChange {
  int32_t id = 0;
  int32_t count = 0;  // how often it was seen; 0: no penalties
  double bias = 0;    // finite or -infinity
};
// Which tokens of one row of logits are wanted. Sources: repeat penalty as in CTRL (Keskar et al.
// 2019), presence and frequency as in OpenAI's API, Gumbel-max sampling.
struct CandidateSpec {
  int32_t row = 0;                       // of the logits
  std::span<const LogitChange> changes;  // ascending by id, no id twice
  float repeat_penalty = 1;              // > 0
  float presence_penalty = 0;
  float frequency_penalty = 0;
  float temperature = 0;  // > 0: keys get Gumbel noise
  uint64_t seed = 0;      // of the noise: (seed, choice, position, token id)
  int32_t choice = 0;
  int32_t position = 0;
  int32_t count = 1;      // candidates wanted; a shard with fewer pads with id -1
  int32_t target = -1;    // a token that is wanted whatever its rank; -1: none
  bool log_sums = false;  // of the changed logits
};
struct Candidate {
  int32_t id = -1;  // in the whole vocabulary
  float logit = 0;  // as the model gave it; a target that must not be drawn: -infinity
  double key = 0;   // the changed logit; with a temperature: that / T + noise
};
// The order of candidates: descending key, then ascending id.
inline bool CandidateBefore(const Candidate& a, const Candidate& b) {
  return a.key > b.key || (a.key == b.key && a.id < b.id);
}

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string Describe() const = 0;  // e.g. "cpu, avx2, 2 threads"
  virtual int threads() const = 0;           // of the host that it computes with
  virtual Buffer Allocate(int64_t bytes) = 0;
  virtual int64_t allocated() const = 0;  // bytes that Allocate has handed out so far
  // A dry backend only counts: its buffers have a size and no memory, LoadWeight does not read, and
  // nothing is computed. Models are built on it to learn what they would take.
  virtual bool dry() const = 0;

  // Set-up. Reads and repacks; blocks the host.
  virtual LoadedWeight LoadWeight(const WeightDesc& desc, const RowReader& reader) = 0;
  // Host bytes into this backend's memory; blocks the host.
  virtual void Upload(const void* host, int64_t bytes, void* to) = 0;

  // For benchmarks: reads every byte of a weight once, as fast as memory gives them, with all
  // threads. No product can take less.
  virtual void ReadThrough(const Weight& weight) = 0;

  // out [T, K] from T stored rows, packed one after another in host memory (embedding rows).
  virtual void DecodeRows(DType type, const std::byte* packed, F32View out) = 0;

  // y = x W^T for weights that share the input x [T, K].
  virtual void Linear(F32View x, std::span<const LinearTask> tasks) = 0;
  // out [T, N + kPartialExtraWords]: the partial of a row-parallel weight, see above.
  virtual void LinearPartial(F32View x, const Weight& weight, int64_t seal, I64View out) = 0;

  // out = x / sqrt(mean(x^2) + eps) * w, per row; w [cols]. out may be x. (Zhang, Sennrich 2019)
  virtual void RmsNorm(F32View x, const float* w, float eps, F32View out) = 0;
  // x += the summed partial (+ bias [N] unless nullptr); out = RmsNorm(x). row_faults [T] gains 1
  // where the flag word is set. A row that does not add up to `seal`, the sum of all ranks' seals, is
  // a breach.
  virtual void AddPartialNorm(F32View x, I64View partial, int64_t seal, const float* bias,
                              const float* w, float eps, F32View out,
                              std::span<int32_t> row_faults) = 0;

  // A part of something that is gathered: to [x.rows * x.cols + kSealFloats] = x without gaps, then a
  // checksum of its bits and the seal.
  virtual void SealPart(F32View x, int64_t seal, float* to) = 0;
  // The same of a part that has arrived; a checksum that differs is a breach.
  virtual void CheckPart(const float* part, int64_t floats, int64_t seal) = 0;

  // The first that was seen; never cleared.
  virtual Breach breach() const = 0;

  // angles [T, rope.dims]: cos then sin of every pair's angle, times the magnitude.
  virtual void RopeAngles(const TokenPlaces& places, const RopeParams& rope, F32View angles) = 0;
  // Rotates the pairs of every head of x [T, H * D], in place. (Su et al. 2021)
  virtual void Rope(F32View x, F32View angles, const RopeParams& rope) = 0;
  virtual int64_t KvPageBytes(const KvLayout& layout) const = 0;
  // k, v [T, heads * D] to their places in the pages.
  virtual void WriteKv(F32View k, F32View v, const TokenPlaces& places, const KvPages& pages) = 0;
  // Causal softmax attention over positions 0 .. p. q, out [T, H * D]; kv_heads [H]: the local KV
  // head of each query head.
  virtual void PagedAttention(F32View q, std::span<const int32_t> kv_heads, float scale,
                              const TokenPlaces& places, const KvPages& pages, F32View out) = 0;
  // out = H (x . signs) per block of `block` columns, a power of two that divides x.cols; or, the
  // other way round, signs . (H x). H: the normalised Walsh-Hadamard matrix in natural order, its
  // own inverse. signs [x.cols], 1 or -1. out may be x.
  enum class Rotation { kForward, kInverse };
  virtual void Rotate(F32View x, const float* signs, int64_t block, Rotation direction,
                      F32View out) = 0;

  // x [T, channels]: causal convolution over each channel's past, in place, then silu. weights
  // [channels, taps], the last tap for the token itself.
  virtual void CausalConvSilu(F32View x, const float* weights, const TokenPlaces& places,
                              const DeltaStates& states) = 0;
  // In place, [T, value heads]: decay = exp(rate . softplus(decay + bias)), beta = sigmoid(beta).
  // rate, bias [value heads].
  virtual void DeltaGates(F32View decay, F32View beta, const float* rate, const float* bias) = 0;
  // The gated delta rule, token by token: S = decay S; S += k (beta (v - S^T k))^T; out = S^T q.
  // qkv [T, channels]: q and k of every key head, then v of every value head; out [T, value heads *
  // D].
  virtual void GatedDeltaRule(F32View qkv, F32View decay, F32View beta, const TokenPlaces& places,
                              const DeltaStates& states, F32View out) = 0;
  // x *= sigmoid(gate), element by element.
  virtual void SigmoidMul(F32View gate, F32View x) = 0;

  // out = silu(gate) * up, element by element; out may be either. (Shazeer 2020)
  virtual void SiluMul(F32View gate, F32View up, F32View out) = 0;
  // out = x.
  virtual void Copy(F32View x, F32View out) = 0;
  // out row i = x row rows[i].
  virtual void SelectRows(F32View x, std::span<const int32_t> rows, F32View out) = 0;

  // logits [R, V] of vocabulary rows first_id .. first_id + V. allowed [V]: 0 where a row of the
  // vocabulary is padding and must not be drawn. Spec after spec: to `out` the best `count`, then,
  // if there is a target, the target, id -1 if it is not in this shard; to `sums`, if they are
  // wanted, the log-sum-exps of all blocks of kLogSumBlock rows.
  virtual void TopCandidates(F32View logits, int32_t first_id, const uint8_t* allowed,
                             std::span<const CandidateSpec> specs, Candidate* out,
                             LogSum* sums) = 0;
};

// Block weights against integer activations, or everything dequantised to f32: the ruler.
enum class Compute { kInteger, kF32 };

struct CpuOptions {
  int threads = 1;
  Compute compute = Compute::kInteger;
  bool dry = false;
};
// The instruction set is the best of this machine, or the one TRINE_CPU names
// (generic|avx2|avx512); *error says why that one cannot be had, with nullptr returned.
std::unique_ptr<Backend> MakeCpuBackend(const CpuOptions& options, std::string* error);

}  // namespace trine
