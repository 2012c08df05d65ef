// The lanes of simd.h in AVX2, FMA and F16C: two halves.

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
static inline F32x16 LoadI8(const int8_t* p) {
  const __m128i bytes = Load128(p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
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
static inline void StoreCodes(uint8_t* p, Codes codes) {
  auto* vectors = reinterpret_cast<__m256i*>(p);
  _mm256_storeu_si256(vectors, codes.lo);
  _mm256_storeu_si256(vectors + 1, codes.hi);
}
static inline Codes ShiftAndMask(Codes word, int shift, char mask) {
  const __m256i kept = _mm256_set1_epi8(mask);
  if (shift != 0) word = {_mm256_srli_epi16(word.lo, shift), _mm256_srli_epi16(word.hi, shift)};
  return {_mm256_and_si256(word.lo, kept), _mm256_and_si256(word.hi, kept)};
}
static inline Codes TwoBits(Codes word, int field) {
  return ShiftAndMask(word, 2 * field, 3);
}
static inline Codes Nibbles(Codes word, int field) {
  return ShiftAndMask(word, 4 * field, 15);
}

struct Fours {
  __m256i v;
};
static inline Fours Broadcast(int32_t activations) {
  return {_mm256_set1_epi32(activations)};
}
static inline __m256i AddPairs(__m256i sums, __m256i pairs) {
  return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
// maddubs saturates on large unsigned codes, so the two halves of each pair are summed apart:
// 255 * 127 fits 16 bits, the sum of two such products does not.
static inline __m256i DotHalf(__m256i sums, __m256i codes, __m256i a) {
  const __m256i even = _mm256_set1_epi16(0x00FF);
  sums = AddPairs(sums, _mm256_maddubs_epi16(_mm256_and_si256(codes, even), a));
  return AddPairs(sums, _mm256_maddubs_epi16(_mm256_andnot_si256(even, codes), a));
}
static inline I32x16 DotWide(I32x16 sums, Codes codes, Fours a) {
  return {DotHalf(sums.lo, codes.lo, a.v), DotHalf(sums.hi, codes.hi, a.v)};
}
// 32 pairs in 16 bits: 128 columns of codes up to 3 reach 32 * 2 * 3 * 128 = 24,576, 32 columns of
// codes up to 15 reach 8 * 2 * 15 * 128 = 30,720.
struct SmallSums {
  __m256i lo, hi;
};
static inline SmallSums StartSmall(int32_t) {
  return {_mm256_setzero_si256(), _mm256_setzero_si256()};
}
static inline SmallSums DotSmall(SmallSums sums, Codes codes, Fours a) {
  return {_mm256_add_epi16(sums.lo, _mm256_maddubs_epi16(codes.lo, a.v)),
          _mm256_add_epi16(sums.hi, _mm256_maddubs_epi16(codes.hi, a.v))};
}
static inline I32x16 FinishSmall(SmallSums sums, int32_t start) {
  const __m256i all = _mm256_set1_epi32(start);
  return {AddPairs(all, sums.lo), AddPairs(all, sums.hi)};
}
static inline void EndLoop(SmallSums& sums) {
  asm("" : "+x"(sums.lo), "+x"(sums.hi));
}
static inline void EndLoop(I32x16& sums) {
  asm("" : "+x"(sums.lo), "+x"(sums.hi));
}
static inline Codes FieldInPlace(Codes word, int field) {
  return TwoBits(word, field);
}
static inline SmallSums Add(SmallSums a, SmallSums b) {
  return {_mm256_add_epi16(a.lo, b.lo), _mm256_add_epi16(a.hi, b.hi)};
}
static inline I32x16 JoinFields(const SmallSums* sums, int32_t start) {
  return FinishSmall(Add(Add(sums[0], sums[1]), Add(sums[2], sums[3])), start);
}
constexpr bool kBaseThree = false;

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
