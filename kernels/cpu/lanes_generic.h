// The lanes of simd.h in plain C++: what every operation means.

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
static inline F32x16 LoadI8(const int8_t* p) {
  return Lanes([&](int i) { return static_cast<float>(p[i]); });
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

// Four columns of sixteen rows, unsigned: byte 4 r + j is column j of row r.
struct Codes {
  uint8_t v[64];
};
static inline Codes LoadCodes(const uint8_t* p) {
  Codes codes;
  __builtin_memcpy(codes.v, p, 64);
  return codes;
}
static inline void StoreCodes(uint8_t* p, Codes codes) {
  __builtin_memcpy(p, codes.v, 64);
}
template <typename Fn>
static inline Codes EachByte(Codes word, Fn fn) {
  for (uint8_t& byte : word.v) byte = static_cast<uint8_t>(fn(byte));
  return word;
}
// Field f of every byte: bits 2 f, or 4 f, and up.
static inline Codes TwoBits(Codes word, int field) {
  return EachByte(word, [&](int byte) { return byte >> (2 * field) & 3; });
}
static inline Codes Nibbles(Codes word, int field) {
  return EachByte(word, [&](int byte) { return byte >> (4 * field) & 15; });
}

// The activations of four columns, which meet all rows.
struct Fours {
  int8_t v[4];
};
static inline Fours Broadcast(int32_t activations) {
  Fours a;
  __builtin_memcpy(a.v, &activations, 4);
  return a;
}
// sums[row] += codes[row] . a
static inline I32x16 DotWide(I32x16 sums, Codes codes, Fours a) {
  for (int i = 0; i < 64; ++i) sums.v[i / 4] += codes.v[i] * a.v[i % 4];
  return sums;
}
// The same for small codes over one unit: where codes are at most 3 up to 128 columns, where they
// are at most 15 up to 32. Sums begin with `start`, which both ends are told.
using SmallSums = I32x16;
static inline SmallSums StartSmall(int32_t start) {
  return Set1(start);
}
static inline SmallSums DotSmall(SmallSums sums, Codes codes, Fours a) {
  return DotWide(sums, codes, a);
}
static inline I32x16 FinishSmall(SmallSums sums, int32_t) {
  return sums;
}
// Told of every sum after the loop that makes it.
static inline void EndLoop(SmallSums&) {}
// Two-bit fields that meet sums of their own, the first begun with `start`: FieldInPlace is the field
// times a power of two that JoinFields, the total of the four, takes out again.
static inline Codes FieldInPlace(Codes word, int field) {
  return TwoBits(word, field);
}
static inline I32x16 JoinFields(const SmallSums* sums, int32_t) {
  return Add(Add(sums[0], sums[1]), Add(sums[2], sums[3]));
}
// Whether base-three bytes can be split, see coded_matmul.h.
constexpr bool kBaseThree = false;

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
