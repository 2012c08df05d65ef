// Kernels that work along a row: quantisation, norms, SwiGLU, the residual sum. Part of a unit, see
// simd.h. Sums over a row run in 16 lanes and end in the fixed tree.

// One group of one row, to 16 bits, or to 8 if high is nullptr; returns its scale.
static inline float QuantiseGroup(const float* x, int64_t group, int8_t* high, int8_t* low) {
  const float most = high == nullptr ? kQuantisedMax8 : kQuantisedMax16;
  F32x16 largest = Zero(), zeros = Zero();
  for (int64_t j = 0; j < group; j += 16) {
    const F32x16 value = LoadPart(x + j, group - j < 16 ? group - j : 16);
    largest = Max(largest, Abs(value));
    zeros = Fma(value, Zero(), zeros);  // NaN where a value is not finite
  }
  const float max = MaxLanes(largest);
  const float inverse = max > 0 ? most / max : 0.0f;
  for (int64_t j = 0; j < group; j += 16) {
    const F32x16 value = LoadPart(x + j, group - j < 16 ? group - j : 16);
    const I32x16 rounded = RoundToInt(Mul(value, Set1(inverse)));
    if (high == nullptr) {
      StoreBytes(rounded, low + j);
    } else {
      SplitBytes(rounded, high + j, low + j);
    }
  }
  return max / most + SumLanes(zeros);
}

static inline int32_t SumBytes(const int8_t* bytes, int64_t n) {
  int32_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += bytes[i];
  return sum;
}

// To token t of TT: four columns together, then those of the next token.
static inline void ScatterFours(const int8_t* from, int64_t n, int64_t t, int64_t tokens,
                                int8_t* to) {
  for (int64_t i = 0; i < n; i += 4) __builtin_memcpy(to + i * tokens + 4 * t, from + i, 4);
}

// Tokens t0 to t0 + tokens, one tile, to their places in `out`.
static inline void QuantiseTile(F32View x, int64_t group, int64_t unit, int64_t t0, int64_t tokens,
                                const QuantisedRows& out) {
  int8_t* high_tile = out.high == nullptr ? nullptr : out.high + t0 * x.cols;
  int8_t* low_tile = out.low + t0 * x.cols;
  float* scales = out.scales + t0 * (x.cols / group);
  int32_t* sums = out.sums + t0 * (x.cols / unit);
  alignas(64) int8_t high[kMostGroup], low[kMostGroup];
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t k = 0; k < x.cols; k += group) {
      scales[k / group * tokens + t] =
          QuantiseGroup(x.row(t0 + t) + k, group, high_tile == nullptr ? nullptr : high, low);
      for (int64_t j = 0; j < group; j += unit) {
        const int32_t upper = high_tile == nullptr ? 0 : 256 * SumBytes(high + j, unit);
        sums[(k + j) / unit * tokens + t] = upper + SumBytes(low + j, unit);
      }
      ScatterFours(low, group, t, tokens, low_tile + k * tokens);
      if (high_tile != nullptr) ScatterFours(high, group, t, tokens, high_tile + k * tokens);
    }
  }
}

static void QuantiseTiles(F32View x, int64_t group, int64_t unit, int64_t begin, int64_t end,
                          const QuantisedRows& out) {
  ForTokenTiles({x.rows}, begin, end, [&]<int TT>(int64_t t0, int64_t) {
    QuantiseTile(x, group, unit, t0, TT, out);
  });
}

static void RmsNormRow(const float* x, const float* w, float eps, int64_t n, float* out) {
  F32x16 squares = Zero();
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) squares = Fma(Load(x + i), Load(x + i), squares);
  if (i < n) squares = Fma(LoadPart(x + i, n - i), LoadPart(x + i, n - i), squares);
  const float mean = SumLanes(squares) / static_cast<float>(n);
  const F32x16 scale = Set1(1.0f / __builtin_sqrtf(mean + eps));
  for (i = 0; i + 16 <= n; i += 16) Store(out + i, Mul(Mul(Load(x + i), scale), Load(w + i)));
  if (i < n) {
    StorePart(out + i, Mul(Mul(LoadPart(x + i, n - i), scale), LoadPart(w + i, n - i)), n - i);
  }
}

static inline F32x16 Silu(F32x16 x) {
  return Div(x, Add(Set1(1.0f), Exp(Mul(x, Set1(-1.0f)))));
}

static void SiluMulRow(const float* gate, const float* up, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) Store(out + i, Mul(Silu(Load(gate + i)), Load(up + i)));
  if (i < n) {
    const F32x16 last = Mul(Silu(LoadPart(gate + i, n - i)), LoadPart(up + i, n - i));
    StorePart(out + i, last, n - i);
  }
}

static void AddPartialRow(const int64_t* partial, const float* bias, int64_t n, float* x) {
  for (int64_t i = 0; i < n; ++i) {
    const float sum = static_cast<float>(static_cast<double>(partial[i]) * (1.0 / kPartialScale));
    x[i] += bias == nullptr ? sum : sum + bias[i];
  }
}
