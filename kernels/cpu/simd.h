// Sixteen lanes of f32 or int32, the same on every instruction set: each operation is exact or
// correctly rounded, so a kernel written on them gives the same bits everywhere. Included once per
// unit (generic.cc, avx2.cc, avx512.cc) inside that unit's namespace; nothing here may be inline in
// the linker's sense.
//
// No include guard on purpose: TRINE_SIMD_GENERIC, _AVX2 or _AVX512 selects the code.

#if defined(TRINE_SIMD_AVX512)

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

// Sixteen rows of four codes, unsigned nibbles: the low ones and the high ones of 64 bytes.
struct Codes {
  __m512i v;
};
static inline void LoadNibbles(const uint8_t* p, Codes* low, Codes* high) {
  const __m512i bytes = _mm512_loadu_si512(p), mask = _mm512_set1_epi8(15);
  low->v = _mm512_and_si512(bytes, mask);
  high->v = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask);
}
static inline Codes LoadCodes(const uint8_t* p) {
  return {_mm512_loadu_si512(p)};
}
static inline void LoadTwoBits(const uint8_t* p, Codes* fields) {
  const __m512i words = _mm512_loadu_si512(p), mask = _mm512_set1_epi8(3);
  fields[0].v = _mm512_and_si512(words, mask);
  fields[1].v = _mm512_and_si512(_mm512_srli_epi32(words, 2), mask);
  fields[2].v = _mm512_and_si512(_mm512_srli_epi32(words, 4), mask);
  fields[3].v = _mm512_and_si512(_mm512_srli_epi32(words, 6), mask);
}
static inline I32x16 DotStart(int32_t activation_sum, int code_bias) {
  return {_mm512_set1_epi32(activation_sum * -code_bias)};
}
// acc[row] += codes[row][0..3] . four signed bytes. Small: codes below 64.
static inline I32x16 DotSmall(I32x16 acc, Codes codes, int32_t activations) {
  return {_mm512_dpbusd_epi32(acc.v, codes.v, _mm512_set1_epi32(activations))};
}
static inline I32x16 DotByte(I32x16 acc, Codes codes, int32_t activations) {
  return DotSmall(acc, codes, activations);
}

// y[lane] += round(a * 2^28), lanes beyond the limit or not finite giving 0. Returns their number.
static inline int AccumulatePartial(int64_t* y, F32x16 a) {
  const __mmask16 good =
      _mm512_cmp_ps_mask(_mm512_abs_ps(a.v), _mm512_set1_ps(kPartialLimit), _CMP_LT_OQ);
  const __m512 kept = _mm512_maskz_mov_ps(good, a.v);
  const __m512d scale = _mm512_set1_pd(kPartialScale);
  for (int half = 0; half < 2; ++half) {
    const __m256 part = half == 0 ? _mm512_castps512_ps256(kept) : _mm512_extractf32x8_ps(kept, 1);
    const __m512i rounded = _mm512_cvtpd_epi64(_mm512_mul_pd(_mm512_cvtps_pd(part), scale));
    int64_t* to = y + 8 * half;
    _mm512_storeu_si512(to, _mm512_add_epi64(_mm512_loadu_si512(to), rounded));
  }
  return 16 - __builtin_popcount(good);
}

#elif defined(TRINE_SIMD_AVX2)

struct F32x16 {
  __m256 lo, hi;
};
struct I32x16 {
  __m256i lo, hi;
};

static inline F32x16 Set1(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
static inline F32x16 Load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
static inline void Store(float* p, F32x16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
static inline __m128i Load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
static inline F32x16 LoadF16(const uint16_t* p) {
  return {_mm256_cvtph_ps(Load128(p)), _mm256_cvtph_ps(Load128(p + 8))};
}
static inline __m256 WidenBF16(__m128i h) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
static inline F32x16 LoadBF16(const uint16_t* p) {
  return {WidenBF16(Load128(p)), WidenBF16(Load128(p + 8))};
}
static inline F32x16 Add(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
static inline F32x16 Sub(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
static inline F32x16 Mul(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
static inline F32x16 Div(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
static inline F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
static inline F32x16 Abs(F32x16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
static inline F32x16 Max(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
static inline F32x16 Min(F32x16 a, F32x16 b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
static inline F32x16 ZeroIfLess(F32x16 x, F32x16 a, F32x16 b) {
  return {_mm256_and_ps(x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_NLT_UQ)),
          _mm256_and_ps(x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_NLT_UQ))};
}
static inline F32x16 IfEqual(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return {_mm256_blendv_ps(y.lo, x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ)),
          _mm256_blendv_ps(y.hi, x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ))};
}
static inline I32x16 Add(I32x16 a, I32x16 b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
static inline I32x16 RoundToInt(F32x16 a) {
  return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)};
}
static inline F32x16 ToFloat(I32x16 a) {
  return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}
static inline F32x16 PowerOfTwo(I32x16 n) {
  const __m256i bias = _mm256_set1_epi32(127);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.lo, bias), 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.hi, bias), 23))};
}
static inline I32x16 Set1(int32_t x) {
  return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
// The low byte of every lane.
static inline void StoreLowBytes(int8_t* p, __m256i lo, __m256i hi) {
  const __m256i mask = _mm256_set1_epi32(255);
  const __m256i words = _mm256_permute4x64_epi64(
      _mm256_packs_epi32(_mm256_and_si256(lo, mask), _mm256_and_si256(hi, mask)), 0xD8);
  const __m128i bytes =
      _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}
static inline void StoreBytes(I32x16 a, int8_t* p) {
  StoreLowBytes(p, a.lo, a.hi);
}
static inline void SplitBytes(I32x16 a, int8_t* high, int8_t* low) {
  const __m256i half = _mm256_set1_epi32(128);
  StoreLowBytes(high, _mm256_srai_epi32(_mm256_add_epi32(a.lo, half), 8),
                _mm256_srai_epi32(_mm256_add_epi32(a.hi, half), 8));
  StoreLowBytes(low, a.lo, a.hi);
}
static inline I32x16 AddShifted(I32x16 low, I32x16 high) {
  return {_mm256_add_epi32(low.lo, _mm256_slli_epi32(high.lo, 8)),
          _mm256_add_epi32(low.hi, _mm256_slli_epi32(high.hi, 8))};
}

struct Codes {
  __m256i lo, hi;
};
static inline Codes LoadCodes(const uint8_t* p) {
  const auto* vectors = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(vectors), _mm256_loadu_si256(vectors + 1)};
}
static inline void LoadNibbles(const uint8_t* p, Codes* low, Codes* high) {
  const Codes bytes = LoadCodes(p);
  const __m256i mask = _mm256_set1_epi8(15);
  *low = {_mm256_and_si256(bytes.lo, mask), _mm256_and_si256(bytes.hi, mask)};
  *high = {_mm256_and_si256(_mm256_srli_epi16(bytes.lo, 4), mask),
           _mm256_and_si256(_mm256_srli_epi16(bytes.hi, 4), mask)};
}
static inline void LoadTwoBits(const uint8_t* p, Codes* fields) {
  const Codes words = LoadCodes(p);
  const __m256i mask = _mm256_set1_epi8(3);
  fields[0] = {_mm256_and_si256(words.lo, mask), _mm256_and_si256(words.hi, mask)};
  fields[1] = {_mm256_and_si256(_mm256_srli_epi32(words.lo, 2), mask),
               _mm256_and_si256(_mm256_srli_epi32(words.hi, 2), mask)};
  fields[2] = {_mm256_and_si256(_mm256_srli_epi32(words.lo, 4), mask),
               _mm256_and_si256(_mm256_srli_epi32(words.hi, 4), mask)};
  fields[3] = {_mm256_and_si256(_mm256_srli_epi32(words.lo, 6), mask),
               _mm256_and_si256(_mm256_srli_epi32(words.hi, 6), mask)};
}
static inline I32x16 DotStart(int32_t activation_sum, int code_bias) {
  return Set1(activation_sum * -code_bias);
}
static inline __m256i AddPairs(__m256i acc, __m256i pairs) {
  return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
static inline I32x16 DotSmall(I32x16 acc, Codes codes, int32_t activations) {
  const __m256i a = _mm256_set1_epi32(activations);
  return {AddPairs(acc.lo, _mm256_maddubs_epi16(codes.lo, a)),
          AddPairs(acc.hi, _mm256_maddubs_epi16(codes.hi, a))};
}
// maddubs saturates on large unsigned codes, so the two halves of each pair are summed apart:
// 255 * 127 fits 16 bits, the sum of two such products does not.
static inline __m256i DotByteHalf(__m256i acc, __m256i codes, __m256i a) {
  const __m256i even = _mm256_set1_epi16(0x00FF);
  acc = AddPairs(acc, _mm256_maddubs_epi16(_mm256_and_si256(codes, even), a));
  return AddPairs(acc, _mm256_maddubs_epi16(_mm256_andnot_si256(even, codes), a));
}
static inline I32x16 DotByte(I32x16 acc, Codes codes, int32_t activations) {
  const __m256i a = _mm256_set1_epi32(activations);
  return {DotByteHalf(acc.lo, codes.lo, a), DotByteHalf(acc.hi, codes.hi, a)};
}

static inline int AccumulatePartial(int64_t* y, F32x16 a) {
  const __m256d scale = _mm256_set1_pd(kPartialScale);
  // Adding 1.5 * 2^52 rounds |v| < 2^51 to an integer, to nearest even, in the low mantissa bits.
  const __m256d magic = _mm256_set1_pd(0x1.8p52);
  const __m256 limit = _mm256_set1_ps(kPartialLimit);
  const F32x16 absolute = Abs(a);
  int good_lanes = 0;
  for (int half = 0; half < 2; ++half) {
    const __m256 value = half == 0 ? a.lo : a.hi;
    const __m256 good = _mm256_cmp_ps(half == 0 ? absolute.lo : absolute.hi, limit, _CMP_LT_OQ);
    good_lanes += __builtin_popcount(static_cast<unsigned>(_mm256_movemask_ps(good)));
    const __m256 kept = _mm256_and_ps(value, good);
    for (int quarter = 0; quarter < 2; ++quarter) {
      const __m128 part =
          quarter == 0 ? _mm256_castps256_ps128(kept) : _mm256_extractf128_ps(kept, 1);
      const __m256d sum = _mm256_fmadd_pd(_mm256_cvtps_pd(part), scale, magic);
      const __m256i rounded =
          _mm256_sub_epi64(_mm256_castpd_si256(sum), _mm256_castpd_si256(magic));
      auto* to = reinterpret_cast<__m256i*>(y + 8 * half + 4 * quarter);
      _mm256_storeu_si256(to, _mm256_add_epi64(_mm256_loadu_si256(to), rounded));
    }
  }
  return 16 - good_lanes;
}

#else

struct F32x16 {
  float v[16];
};
struct I32x16 {
  int32_t v[16];
};

template <typename Fn>
static inline F32x16 Lanes(Fn fn) {
  F32x16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = fn(i);
  return r;
}
template <typename Fn>
static inline I32x16 IntLanes(Fn fn) {
  I32x16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = fn(i);
  return r;
}

static inline F32x16 Set1(float x) {
  return Lanes([&](int) { return x; });
}
static inline F32x16 Load(const float* p) {
  return Lanes([&](int i) { return p[i]; });
}
static inline void Store(float* p, F32x16 a) {
  for (int i = 0; i < 16; ++i) p[i] = a.v[i];
}
static inline F32x16 LoadF16(const uint16_t* p) {
  return Lanes([&](int i) { return F16ToFloat(p[i]); });
}
static inline F32x16 LoadBF16(const uint16_t* p) {
  return Lanes([&](int i) { return BF16ToFloat(p[i]); });
}
static inline F32x16 Add(F32x16 a, F32x16 b) {
  return Lanes([&](int i) { return a.v[i] + b.v[i]; });
}
static inline F32x16 Sub(F32x16 a, F32x16 b) {
  return Lanes([&](int i) { return a.v[i] - b.v[i]; });
}
static inline F32x16 Mul(F32x16 a, F32x16 b) {
  return Lanes([&](int i) { return a.v[i] * b.v[i]; });
}
static inline F32x16 Div(F32x16 a, F32x16 b) {
  return Lanes([&](int i) { return a.v[i] / b.v[i]; });
}
static inline F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  return Lanes([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
static inline F32x16 Abs(F32x16 a) {
  return Lanes([&](int i) { return __builtin_fabsf(a.v[i]); });
}
// As the vector instructions do: the second operand if either is not a number.
static inline F32x16 Max(F32x16 a, F32x16 b) {
  return Lanes([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
static inline F32x16 Min(F32x16 a, F32x16 b) {
  return Lanes([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
// x, and 0 in the lanes where a < b.
static inline F32x16 ZeroIfLess(F32x16 x, F32x16 a, F32x16 b) {
  return Lanes([&](int i) { return a.v[i] < b.v[i] ? 0.0f : x.v[i]; });
}
// x in the lanes where a == b, y in the others.
static inline F32x16 IfEqual(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return Lanes([&](int i) { return a.v[i] == b.v[i] ? x.v[i] : y.v[i]; });
}
static inline I32x16 Add(I32x16 a, I32x16 b) {
  return IntLanes([&](int i) { return a.v[i] + b.v[i]; });
}
// To nearest, ties to even; INT32_MIN where the value does not fit.
static inline I32x16 RoundToInt(F32x16 a) {
  return IntLanes([&](int i) {
    const float r = __builtin_nearbyintf(a.v[i]);
    return r >= -0x1p31f && r < 0x1p31f ? static_cast<int32_t>(r) : INT32_MIN;
  });
}
static inline F32x16 ToFloat(I32x16 a) {
  return Lanes([&](int i) { return static_cast<float>(a.v[i]); });
}
// 2^n for -127 <= n <= 127; 0 for n = -127.
static inline F32x16 PowerOfTwo(I32x16 n) {
  return Lanes([&](int i) { return BitsToFloat(static_cast<uint32_t>(n.v[i] + 127) << 23); });
}
static inline I32x16 Set1(int32_t x) {
  return IntLanes([&](int) { return x; });
}
static inline void StoreBytes(I32x16 a, int8_t* p) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(a.v[i]);
}
// a = 256 high + low with both in a signed byte; |a| <= kQuantisedMax16.
static inline void SplitBytes(I32x16 a, int8_t* high, int8_t* low) {
  for (int i = 0; i < 16; ++i) {
    high[i] = static_cast<int8_t>((a.v[i] + 128) >> 8);
    low[i] = static_cast<int8_t>(a.v[i]);
  }
}
// low + 256 high
static inline I32x16 AddShifted(I32x16 low, I32x16 high) {
  return IntLanes([&](int i) { return low.v[i] + high.v[i] * 256; });
}

struct Codes {
  uint8_t v[64];
};
static inline Codes LoadCodes(const uint8_t* p) {
  Codes codes;
  __builtin_memcpy(codes.v, p, 64);
  return codes;
}
// Words of sixteen two-bit codes: field f of a row holds its columns f, 4 + f, 8 + f, 12 + f.
static inline void LoadTwoBits(const uint8_t* p, Codes* fields) {
  for (int f = 0; f < 4; ++f) {
    for (int i = 0; i < 64; ++i) fields[f].v[i] = (p[i] >> (2 * f)) & 3;
  }
}
static inline void LoadNibbles(const uint8_t* p, Codes* low, Codes* high) {
  for (int i = 0; i < 64; ++i) {
    low->v[i] = p[i] & 15;
    high->v[i] = p[i] >> 4;
  }
}
static inline I32x16 DotStart(int32_t activation_sum, int code_bias) {
  return Set1(activation_sum * -code_bias);
}
static inline I32x16 DotByte(I32x16 acc, Codes codes, int32_t activations) {
  int8_t a[4];
  __builtin_memcpy(a, &activations, 4);
  for (int row = 0; row < 16; ++row) {
    for (int j = 0; j < 4; ++j) acc.v[row] += codes.v[4 * row + j] * a[j];
  }
  return acc;
}
static inline I32x16 DotSmall(I32x16 acc, Codes codes, int32_t activations) {
  return DotByte(acc, codes, activations);
}

static inline int AccumulatePartial(int64_t* y, F32x16 a) {
  int bad = 0;
  for (int i = 0; i < 16; ++i) {
    if (__builtin_fabsf(a.v[i]) < kPartialLimit) {
      y[i] +=
          static_cast<int64_t>(__builtin_nearbyint(static_cast<double>(a.v[i]) * kPartialScale));
    } else {
      ++bad;
    }
  }
  return bad;
}

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

// Calls tile.operator()<n>(t) for tiles of tokens [t, t + n) that cover [begin, end): n = TT as
// long as it goes, then the rest.
template <int TT, typename Tile>
static inline void ForTokenTiles(int64_t begin, int64_t end, const Tile& tile) {
  for (; begin + TT <= end; begin += TT) tile.template operator()<TT>(begin);
  if constexpr (TT > 1) ForTokenTiles<TT - 1>(begin, end, tile);
}

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
