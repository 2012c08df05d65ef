// The table of kernels that each instruction-set unit fills in. Plain data in, plain data out: a
// kernel works on a range of an operation, the backend splits operations over threads.
#pragma once

#include <cstdint>

#include "kernels/backend.h"

namespace trine::cpu {

// How a weight is laid out: panels of 16 rows, each 32-bit or wider lane one row, k ascending.
// Float kinds: [K][16] elements. Coded kinds, per unit of `unit` columns: the codes less `lowest`
// ([unit / 4][16 rows][4], nibbles: the upper half of a byte holds the next four columns), then f32
// scales [16], then f32 minima [16] if has_min. Two-bit kind, per unit: words [unit / 16][16 rows]
// of 16 codes, column c in bits 2 c, then f16 scales [16].
enum class PanelKind { kF32, kF16, kBF16, kNibble, kByte, kTwoBit };

struct Panels {
  PanelKind kind = PanelKind::kF32;
  const uint8_t* data = nullptr;
  int64_t panel_bytes = 0;
  int64_t rows = 0;     // N; the last panel is padded with zeros
  int64_t cols = 0;     // K
  int64_t granule = 0;  // as in WeightDesc
  int64_t unit = 1;     // columns that share a scale; divides `group`; float kinds: 1
  int64_t group = 0;    // columns of x that share an activation scale; divides cols and granule.
                        // 0: float kinds. Two-bit kind: one unit, or two (see TwoBitColumns)
  int code_bias = 0;    // what was added to the codes to make them unsigned
  bool has_min = false;
  int64_t scales_at = 0;   // bytes from the start of a unit
  int64_t unit_bytes = 0;  // of 16 rows, scales included
};

// x as a weight wants it. Float kinds read x in tiles of tokens, see float_matmul.h; coded kinds
// read 16-bit integers a, kept as two planes of bytes (a = 256 high + low) so that they meet the
// codes in byte dot products, with a scale per group. The two-bit kind reads 8-bit integers, `low`
// alone, where the 16 columns of a word lie as its fields come up: 0 4 8 12, 1 5 9 13, ...
struct QuantisedRows {
  int8_t* high = nullptr;   // [T, K]; nullptr for 8 bits
  int8_t* low = nullptr;    // [T, K]
  float* scales = nullptr;  // [T, K / group]
  int32_t* sums = nullptr;  // [T, K / unit]: sums of a
};
struct Activations {
  F32View x;
  QuantisedRows q;
  const float* tiles = nullptr;  // x as pack_tiles leaves it; one token: its row
  float* kept = nullptr;         // scratch of one thread: KeptFloats(tokens), aligned to 64 bytes
};

// Float kinds: tokens of a tile, panels that meet it, tokens whose sums pass through `kept`
// together.
inline constexpr int kTileTokens = 6;
inline constexpr int kGroupPanels = 4;
inline constexpr int64_t kBlockTokens = 86 * kTileTokens;
inline constexpr int64_t KeptFloats(int64_t tokens) {
  if (tokens <= kTileTokens) return 0;
  return kGroupPanels * 16 * (tokens < kBlockTokens ? tokens : kBlockTokens);
}

// The largest integers of either kind; that of 16 bits has the high byte 127 when rounded.
inline constexpr float kQuantisedMax16 = 127 * 256 + 127;
inline constexpr float kQuantisedMax8 = 127;

struct AttentionTask {
  F32View q;
  const int32_t* kv_heads;
  float scale;
  const TokenPlaces* places;
  KvPages pages;
  F32View out;
};

struct DeltaTask {
  F32View qkv, decay, beta, out;  // one sequence's tokens
  DeltaLayout layout;
  float* state;
  bool fresh;  // the state counts as zero
};

struct CpuKernels {
  const char* name;

  // Panels [begin, end) times every row of x.
  void (*linear)(const Panels& w, const Activations& a, int64_t begin, int64_t end,
                 const float* bias, F32View y);
  void (*linear_partial)(const Panels& w, const Activations& a, int64_t begin, int64_t end,
                         I64View out);
  // Tiles [begin, end) of tokens: out + t0 * K holds tile t0's x as [K][its tokens].
  void (*pack_tiles)(F32View x, int64_t begin, int64_t end, float* out);

  // Rows [begin, end) of x to integers up to that maximum, scale = max|x| / maximum per group,
  // rounded to nearest even. A value that is not finite makes its group's scale NaN.
  void (*quantise)(F32View x, int64_t group, int64_t unit, int64_t begin, int64_t end,
                   const QuantisedRows& out);

  // One row each.
  void (*rms_norm)(const float* x, const float* w, float eps, int64_t n, float* out);
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
  // x[0..n) += partial / 2^28 + bias.
  void (*add_partial)(const int64_t* partial, const float* bias, int64_t n, float* x);

  // One block of one row; see Backend::Rotate.
  void (*rotate)(const float* x, const float* signs, int64_t block, Backend::Rotation direction,
                 float* out);
  void (*sigmoid_mul)(const float* gate, int64_t n, float* x);
  void (*delta_gates)(const float* rate, const float* bias, int64_t n, float* decay, float* beta);
  // Channels [begin, end) of one sequence's tokens, rows of x.
  void (*conv_silu)(F32View x, const float* weights, int64_t taps, float* state, bool fresh,
                    int64_t begin, int64_t end);
  // Value columns [begin, end), a head's first being a multiple of D, of one sequence's tokens.
  void (*delta_rule)(const DeltaTask& task, int64_t begin, int64_t end);

  // Pairs (token, head) [begin, end), numbered token * heads + head.
  void (*attention)(const AttentionTask& task, int64_t begin, int64_t end);
};

// Each is defined in its unit's file; nullptr if the unit was not built for this processor family.
const CpuKernels* GenericKernels();
const CpuKernels* Avx2Kernels();
const CpuKernels* Avx512Kernels();

// Bytes of one head's keys and values in a page: keys as [D][page tokens], values as
// [page tokens][D rounded up to 16].
inline constexpr int64_t KvRowElements(int64_t head_dim) {
  return (head_dim + 15) / 16 * 16;
}
inline constexpr int64_t KvElementBytes(KvType type) {
  return type == KvType::kF16 ? 2 : 4;
}
inline constexpr int64_t KvHeadElements(int64_t head_dim) {
  return kPageTokens * (head_dim + KvRowElements(head_dim));
}

}  // namespace trine::cpu
