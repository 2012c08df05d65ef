// The lanes of simd.h in AVX-512 (F, BW, VL, DQ, VNNI).

struct F32x16 {
  __m512 v;
};
struct I32x16 {
  __m512i v;
};

static inline F32x16 Set1(float x) {
  return {_mm512_set1_ps(x)};
}
static inline F32x16 Load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
static inline void Store(float* p, F32x16 a) {
  _mm512_storeu_ps(p, a.v);
}
static inline F32x16 LoadF16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
static inline F32x16 LoadBF16(const uint16_t* p) {
  const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))};
}
static inline F32x16 LoadI8(const int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}
static inline F32x16 Add(F32x16 a, F32x16 b) {
  return {_mm512_add_ps(a.v, b.v)};
}
static inline F32x16 Sub(F32x16 a, F32x16 b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
static inline F32x16 Mul(F32x16 a, F32x16 b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
static inline F32x16 Div(F32x16 a, F32x16 b) {
  return {_mm512_div_ps(a.v, b.v)};
}
static inline F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
static inline F32x16 Abs(F32x16 a) {
  return {_mm512_abs_ps(a.v)};
}
static inline F32x16 Max(F32x16 a, F32x16 b) {
  return {_mm512_max_ps(a.v, b.v)};
}
static inline F32x16 Min(F32x16 a, F32x16 b) {
  return {_mm512_min_ps(a.v, b.v)};
}
static inline F32x16 ZeroIfLess(F32x16 x, F32x16 a, F32x16 b) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_NLT_UQ), x.v)};
}
static inline F32x16 IfEqual(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ), y.v, x.v)};
}
static inline I32x16 RoundToInt(F32x16 a) {
  return {_mm512_cvtps_epi32(a.v)};
}
static inline I32x16 Add(I32x16 a, I32x16 b) {
  return {_mm512_add_epi32(a.v, b.v)};
}
static inline F32x16 ToFloat(I32x16 a) {
  return {_mm512_cvtepi32_ps(a.v)};
}
static inline F32x16 PowerOfTwo(I32x16 n) {
  const __m512i biased = _mm512_add_epi32(n.v, _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(biased, 23))};
}
static inline I32x16 Set1(int32_t x) {
  return {_mm512_set1_epi32(x)};
}
static inline void StoreBytes(I32x16 a, int8_t* p) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}
static inline void SplitBytes(I32x16 a, int8_t* high, int8_t* low) {
  const __m512i upper = _mm512_srai_epi32(_mm512_add_epi32(a.v, _mm512_set1_epi32(128)), 8);
  StoreBytes({upper}, high);
  StoreBytes(a, low);
}
static inline I32x16 AddShifted(I32x16 low, I32x16 high) {
  return {_mm512_add_epi32(low.v, _mm512_slli_epi32(high.v, 8))};
}

struct Codes {
  __m512i v;
};
static inline Codes LoadCodes(const uint8_t* p) {
  return {_mm512_loadu_si512(p)};
}
static inline void StoreCodes(uint8_t* p, Codes codes) {
  _mm512_storeu_si512(p, codes.v);
}
static inline Codes TwoBits(Codes word, int field) {
  const __m512i shifted = field == 0 ? word.v : _mm512_srli_epi16(word.v, 2 * field);
  return {_mm512_and_si512(shifted, _mm512_set1_epi8(3))};
}
static inline Codes Nibbles(Codes word, int field) {
  const __m512i shifted = field == 0 ? word.v : _mm512_srli_epi16(word.v, 4);
  return {_mm512_and_si512(shifted, _mm512_set1_epi8(15))};
}
static inline Codes SpreadNibbles(const uint8_t* p) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  __m512i word = _mm512_cvtepu16_epi32(halves);
  word = _mm512_and_si512(_mm512_or_si512(word, _mm512_slli_epi32(word, 8)),
                          _mm512_set1_epi32(0x00FF00FF));
  return {_mm512_or_si512(word, _mm512_slli_epi32(word, 4))};
}

// The table of 81 entries is one vpermi2b. Its instruction is written out because the rest of this
// unit also runs on processors without VBMI; a weight is only packed so where it is there.
constexpr bool kBaseThree = true;
struct BaseThreeTable {
  alignas(64) uint8_t fours[128] = {};
  constexpr BaseThreeTable() {
    for (int i = 0; i < 81; ++i) {
      fours[i] = static_cast<uint8_t>(i % 3 | i / 3 % 3 << 2 | i / 9 % 3 << 4 | i / 27 << 6);
    }
  }
};
constexpr BaseThreeTable kBaseThreeTable;
// A byte less 81, or 162, is the smallest of the three that it can be: the others wrap around. What
// was taken off keeps t in its top two bits: 81 is 64 + 17, 162 is 128 + 34.
static inline void SplitBaseThree(Codes bytes, Codes* fours, Codes* fifth) {
  const __m512i once = _mm512_sub_epi8(bytes.v, _mm512_set1_epi8(81));
  const __m512i twice = _mm512_sub_epi8(bytes.v, _mm512_set1_epi8(static_cast<char>(162)));
  __m512i rest = _mm512_min_epu8(_mm512_min_epu8(bytes.v, once), twice);
  fifth->v = _mm512_sub_epi8(bytes.v, rest);
  const __m512i low = _mm512_load_si512(kBaseThreeTable.fours);
  const __m512i high = _mm512_load_si512(kBaseThreeTable.fours + 64);
  asm("vpermi2b %2, %1, %0" : "+v"(rest) : "v"(low), "v"(high));
  fours->v = rest;
}

struct Fours {
  __m512i v;
};
static inline Fours Broadcast(int32_t activations) {
  return {_mm512_set1_epi32(activations)};
}
static inline I32x16 DotWide(I32x16 sums, Codes codes, Fours a) {
  return {_mm512_dpbusd_epi32(sums.v, codes.v, a.v)};
}
using SmallSums = I32x16;
static inline SmallSums StartSmall(int32_t start) {
  return {_mm512_set1_epi32(start)};
}
static inline SmallSums DotSmall(SmallSums sums, Codes codes, Fours a) {
  return DotWide(sums, codes, a);
}
static inline I32x16 FinishSmall(SmallSums sums, int32_t) {
  return sums;
}
// Without it GCC may store a sum in every step of a loop where it needs the register after the loop.
static inline void EndLoop(SmallSums& sums) {
  asm("" : "+v"(sums.v));
}
// Field f is left where it is, as codes times 4^f: no shifts, and the sums are exact multiples.
static inline Codes FieldInPlace(Codes word, int field) {
  return {_mm512_and_si512(word.v, _mm512_set1_epi8(static_cast<char>(3 << (2 * field))))};
}
static inline I32x16 JoinFields(const SmallSums* sums, int32_t) {
  const __m512i low = _mm512_add_epi32(sums[0].v, _mm512_srai_epi32(sums[1].v, 2));
  const __m512i high =
      _mm512_add_epi32(_mm512_srai_epi32(sums[2].v, 4), _mm512_srai_epi32(sums[3].v, 6));
  return {_mm512_add_epi32(low, high)};
}

// y[lane] += round(a * 2^28), lanes beyond the limit or not finite giving 0. Returns their number.
static inline int AccumulatePartial(int64_t* y, F32x16 a) {
  const __mmask16 good =
      _mm512_cmp_ps_mask(_mm512_abs_ps(a.v), _mm512_set1_ps(kPartialLimit), _CMP_LT_OQ);
  // A power of two, so the product is exact.
  const __m512 kept = _mm512_maskz_mul_ps(good, a.v, _mm512_set1_ps(kPartialScale));
  for (int half = 0; half < 2; ++half) {
    const __m256 part = half == 0 ? _mm512_castps512_ps256(kept) : _mm512_extractf32x8_ps(kept, 1);
    const __m512i rounded = _mm512_cvtps_epi64(part);
    int64_t* to = y + 8 * half;
    _mm512_storeu_si512(to, _mm512_add_epi64(_mm512_loadu_si512(to), rounded));
  }
  return 16 - __builtin_popcount(good);
}
