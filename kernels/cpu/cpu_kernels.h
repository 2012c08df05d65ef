// The table of kernels that each instruction-set unit fills in. Plain data in, plain data out: a
// kernel works on a range of an operation, the backend splits operations over threads.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "kernels/backend.h"

namespace trine::cpu {

// How a weight is laid out: panels of 16 rows, each 32-bit or wider lane one row, k ascending.
// Float kinds: [K][16] elements. Coded kinds, per unit of `unit` columns: the codes less `lowest`
// as [unit / 4][16 rows][4] bytes, several such fields to a byte where codes are small, then the
// scales. Nibble kind: two fields, columns 8 i to 8 i + 3 and the next four. Both it and the byte
// kind: f32 scales [16], then f32 minima [16] if has_min. Two-bit kind: four fields, 16 columns;
// f16 scales [16]. Base-three kind, units of 128: six times 20 columns, byte = r + 81 t, the
// digits of r four fields, t the fifth; 16 rows of 16 bits, nibble i of a row columns 120 + i and
// 124 + i; f16 scales.
enum class PanelKind { kF32, kF16, kBF16, kNibble, kByte, kTwoBit, kBaseThree };

struct Panels {
  PanelKind kind = PanelKind::kF32;
  const uint8_t* data = nullptr;
  int64_t panel_bytes = 0;
  int64_t rows = 0;     // N; the last panel is padded with zeros
  int64_t cols = 0;     // K
  int64_t granule = 0;  // as in WeightDesc
  int64_t unit = 1;     // columns that share a scale; divides `group`; float kinds: 1. Both are
                        // powers of two
  int64_t group = 0;    // columns of x that share an activation scale; divides cols and granule.
                        // 0: float kinds. Two-bit kind: one unit, or two (see AddPair)
  int code_bias = 0;    // what was added to the codes to make them unsigned
  bool has_min = false;
  int64_t scales_at = 0;   // bytes from the start of a unit
  int64_t unit_bytes = 0;  // of 16 rows, scales included

  // In so many columns. Without a division, which would be felt between short granules.
  int64_t Units(int64_t columns) const { return columns >> std::countr_zero(as_unsigned(unit)); }
  int64_t Groups(int64_t columns) const { return columns >> std::countr_zero(as_unsigned(group)); }

 private:
  static constexpr uint64_t as_unsigned(int64_t n) { return static_cast<uint64_t>(n); }
};

// x as a weight wants it, in tiles of tokens (TokenTiles). A tile that begins with token t0 lies at t0
// times the numbers a token has. Float kinds: f32 [K][tokens]. Coded kinds:
// integers, four columns of a token at a time, [K / 4][tokens][4], with a scale per group,
// [K / group][tokens]. They have 16 bits, kept as two planes of bytes (a = 256 high + low) so that
// they meet the codes in byte dot products; for the two-bit kinds 8 bits, `low` alone.
struct QuantisedRows {
  int8_t* high = nullptr;   // nullptr for 8 bits
  int8_t* low = nullptr;
  float* scales = nullptr;
  int32_t* sums = nullptr;  // [K / unit][tokens]: sums of a
};
struct Activations {
  F32View x;
  QuantisedRows q;
  const float* tiles = nullptr;  // of float kinds; one token: its row
  float* kept = nullptr;         // scratch of one thread: KeptFloats(tokens), aligned to 64 bytes
};

// Most tokens of a tile, panels that meet it, most tiles whose sums pass through `kept` together.
inline constexpr int kTileTokens = 6;
inline constexpr int kGroupPanels = 4;
inline constexpr int64_t kMostBlockTiles = 86;
inline constexpr int64_t KeptFloats(int64_t tokens) {
  const int64_t most = kMostBlockTiles * kTileTokens;
  return tokens <= kTileTokens ? 0 : kGroupPanels * 16 * (tokens < most ? tokens : most);
}

// How the tokens of a step are tiled: all tiles are full but the last two, which share evenly.
struct TokenTiles {
  int64_t tokens;

  int64_t count() const { return (tokens + kTileTokens - 1) / kTileTokens; }
  int64_t begin(int64_t i) const {
    const int64_t last = count() - 1;
    if (i > last) return tokens;
    if (i < last || i == 0) return i * kTileTokens;
    return tokens - (tokens - (last - 1) * kTileTokens) / 2;
  }
};

// The largest integers of either kind; that of 16 bits has the high byte 127 when rounded.
inline constexpr float kQuantisedMax16 = 127 * 256 + 127;
inline constexpr float kQuantisedMax8 = 127;
inline constexpr int64_t kMostGroup = 128;  // columns

struct AttentionTask {
  F32View q;
  const int32_t* kv_heads;
  float scale;
  const TokenPlaces* places;
  KvPages pages;
  F32View out;
};

// Queries of neighbouring tokens of one sequence and of neighbouring heads that share a KV head: they
// meet the same keys.
inline constexpr int kBlockQueries = 6;  // at most, if there is one token or one head
struct QueryBlock {
  int64_t token, tokens;
  int64_t head, heads;
};

// One sequence's tokens of a step, and its slot's state.
struct SlotTask {
  bool fresh;        // the state counts as zero
  int64_t drafts;    // the last tokens, never all: the state stays that before them
  int64_t accepted;  // rows of the log that come before the tokens
};
// A slot's rows of DeltaStates::log; none without speculation.
struct DraftLog {
  F32View inputs;       // [drafts, channels]
  F32View kv;           // [drafts, channels less q's]
  F32View decay, beta;  // [drafts, value heads]
};
inline DraftLog LogOfSlot(const DeltaStates& states, int32_t slot) {
  const DeltaLayout& layout = states.layout;
  if (layout.drafts == 0) return {};
  float* at = states.log + slot * layout.log_floats();
  const auto part = [&](int64_t cols) {
    const F32View view{at, layout.drafts, cols, layout.log_row()};
    at += cols;
    return view;
  };
  const int64_t channels = layout.channels(), keys = layout.key_heads * layout.head_dim;
  return {part(channels), part(channels - keys), part(layout.value_heads),
          part(layout.value_heads)};
}
struct ConvTask {
  F32View x;
  const float* weights;
  int64_t taps;
  SlotTask slot;
  float* state;  // [taps - 1][channels], the oldest first
  F32View log;   // read, then written
};
struct DeltaTask {
  F32View qkv, decay, beta, out;
  DeltaLayout layout;
  SlotTask slot;
  float* state;
  DraftLog log;  // only read
};

struct CpuKernels {
  const char* name;
  bool base_three;  // multiplies panels of the base-three kind, if the processor has VBMI

  // Panels [begin, end) times every row of x.
  void (*linear)(const Panels& w, const Activations& a, int64_t begin, int64_t end,
                 const float* bias, F32View y);
  void (*linear_partial)(const Panels& w, const Activations& a, int64_t begin, int64_t end,
                         I64View out);
  // Tiles [begin, end) of tokens: out + t0 * K holds tile t0's x as [K][its tokens].
  void (*pack_tiles)(F32View x, int64_t begin, int64_t end, float* out);

  // Tiles [begin, end) of x to integers up to that maximum, scale = max|x| / maximum per group,
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
  // Channels [begin, end).
  void (*conv_silu)(const ConvTask& task, int64_t begin, int64_t end);
  // Value columns [begin, end), a head's first being a multiple of D.
  void (*delta_rule)(const DeltaTask& task, int64_t begin, int64_t end);

  void (*attention)(const AttentionTask& task, std::span<const QueryBlock> blocks);
};

// Each is defined in its unit's file; nullptr if the unit was not built for this processor family.
const CpuKernels* GenericKernels();
const CpuKernels* Avx2Kernels();
const CpuKernels* Avx512Kernels();

// One head's part of a page: keys as [D][page tokens], values as [page tokens][D rounded up to 16];
// kQ8_0 then has f16 scales, [groups][page tokens] of keys and again of values.
inline constexpr int64_t kKvGroup = 32;  // d that share a scale
inline constexpr int64_t KvRowElements(int64_t head_dim) {
  return (head_dim + 15) / 16 * 16;
}
inline constexpr int64_t KvHeadElements(int64_t head_dim) {
  return kPageTokens * (head_dim + KvRowElements(head_dim));
}
inline constexpr int64_t KvScales(int64_t head_dim) {  // of keys or values
  return (head_dim + kKvGroup - 1) / kKvGroup * kPageTokens;
}
inline constexpr int64_t KvHeadBytes(KvType type, int64_t head_dim) {
  const int64_t elements = KvHeadElements(head_dim);
  if (type == KvType::kQ8_0) return elements + 2 * KvScales(head_dim) * 2;
  return elements * (type == KvType::kF16 ? 2 : 4);
}

}  // namespace trine::cpu
