// Sixteen lanes of f32 or int32, the same on every instruction set: each operation is exact or
// correctly rounded, so a kernel written on them gives the same bits everywhere. Included once per
// unit (generic.cc, avx2.cc, avx512.cc) inside that unit's namespace; nothing here may be inline in
// the linker's sense.
//
// No include guard on purpose: TRINE_SIMD_GENERIC, _AVX2 or _AVX512 selects the code.

#if defined(TRINE_SIMD_AVX512)
#include "kernels/cpu/lanes_avx512.h"
#elif defined(TRINE_SIMD_AVX2)
#include "kernels/cpu/lanes_avx2.h"
#else
#include "kernels/cpu/lanes_generic.h"
#endif

// ---- the same on every instruction set

static inline F32x16 Zero() {
  return Set1(0.0f);
}

// Sixteen values by their type.
using F16 = uint16_t;
struct BF16 {
  uint16_t bits;
};
static inline F32x16 LoadLanes(const float* p) {
  return Load(p);
}
static inline F32x16 LoadLanes(const F16* p) {
  return LoadF16(p);
}
static inline F32x16 LoadLanes(const BF16* p) {
  return LoadBF16(&p->bits);
}

// The first n lanes from p, zeros after them.
static inline F32x16 LoadPart(const float* p, int64_t n) {
  if (n == 16) return Load(p);
  alignas(64) float lanes[16] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return Load(lanes);
}
static inline void StorePart(float* p, F32x16 a, int64_t n) {
  if (n == 16) return Store(p, a);
  alignas(64) float lanes[16];
  Store(lanes, a);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}

// fn(0), fn(1), ... fn(N - 1) without a loop: arrays of lanes that are indexed so become registers.
#define TRINE_INLINE __attribute__((always_inline))
template <int N, int I = 0, typename Fn>
TRINE_INLINE static inline void Unrolled(const Fn& fn) {
  if constexpr (I < N) {
    fn(I);
    Unrolled<N, I + 1>(fn);
  }
}

// Calls tile.operator()<tokens of the tile>(its first token, that of the tile after it) for tiles
// [begin, end); after the last comes the first of them.
template <typename Tile>
static inline void ForTokenTiles(const TokenTiles& tiles, int64_t begin, int64_t end,
                                 const Tile& tile) {
  static_assert(kTileTokens == 6);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t t = tiles.begin(i), after = tiles.begin(i + 1 < end ? i + 1 : begin);
    switch (tiles.begin(i + 1) - t) {
      case 1:
        tile.template operator()<1>(t, after);
        break;
      case 2:
        tile.template operator()<2>(t, after);
        break;
      case 3:
        tile.template operator()<3>(t, after);
        break;
      case 4:
        tile.template operator()<4>(t, after);
        break;
      case 5:
        tile.template operator()<5>(t, after);
        break;
      default:
        tile.template operator()<6>(t, after);
    }
  }
}

// A group of panels and a block of columns, all in one granule.
struct Block {
  int64_t panel, panels;           // the first, and how many there are
  int64_t nth[kGroupPanels];       // 0, 1, ...; those beyond `panels` repeat the last
  const uint8_t* w[kGroupPanels];  // where each begins
  int64_t k, n;                    // the columns
  bool begins, ends;               // the sums of a granule
  bool first;                      // granule
};

// Fixed tree: lane i with i + 8, then + 4, + 2, + 1.
static inline float SumLanes(F32x16 a) {
  alignas(64) float lanes[16];
  Store(lanes, a);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}
static inline float MaxLanes(F32x16 a) {
  alignas(64) float lanes[16];
  Store(lanes, a);
  float best = lanes[0];
  for (int i = 1; i < 16; ++i) best = lanes[i] > best ? lanes[i] : best;
  return best;
}

// e^x within 2 ulp; exactly 0 below -87, so that e^-infinity is; NaN stays NaN. Cody-Waite
// reduction by ln 2, then the Taylor polynomial of degree 7 on |r| <= ln(2)/2 (remainder below
// 2^-26 relative).
static inline F32x16 Exp(F32x16 x) {
  // The operand order lets a NaN through.
  const F32x16 clamped = Min(Set1(88.0f), Max(Set1(-87.0f), x));
  const I32x16 n = RoundToInt(Mul(clamped, Set1(0x1.715476p+0f)));
  F32x16 r = Fma(ToFloat(n), Set1(-0x1.62e400p-1f), clamped);
  r = Fma(ToFloat(n), Set1(-0x1.7f7d1cp-20f), r);
  F32x16 p = Set1(1.0f / 5040);
  p = Fma(p, r, Set1(1.0f / 720));
  p = Fma(p, r, Set1(1.0f / 120));
  p = Fma(p, r, Set1(1.0f / 24));
  p = Fma(p, r, Set1(1.0f / 6));
  p = Fma(p, r, Set1(0.5f));
  p = Fma(p, r, Set1(1.0f));
  p = Fma(p, r, Set1(1.0f));
  return ZeroIfLess(Mul(p, PowerOfTwo(n)), x, Set1(-87.0f));
}
