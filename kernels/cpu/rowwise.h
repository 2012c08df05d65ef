// Kernels that work along a row: quantisation, norms, SwiGLU, the residual sum. Part of a unit, see
// simd.h. Sums over a row run in 16 lanes and end in the fixed tree.

// From columns in order to the order of a word's fields, and back: the transpose of 4 x 4 bytes.
static inline void TransposeBytes(const int8_t* in, int8_t* out) {
  for (int i = 0; i < 16; ++i) out[i % 4 * 4 + i / 4] = in[i];
}

// One group of one row, to 16 bits, or to 8 if high is nullptr; returns its scale.
static inline float QuantiseGroup(const float* x, int64_t group, int8_t* high, int8_t* low) {
  const float most = high == nullptr ? kQuantisedMax8 : kQuantisedMax16;
  F32x16 largest = Zero(), zeros = Zero();
  for (int64_t j = 0; j < group; j += 16) {
    const int64_t n = group - j < 16 ? group - j : 16;
    const F32x16 value = n == 16 ? Load(x + j) : LoadPart(x + j, n);
    largest = Max(largest, Abs(value));
    zeros = Fma(value, Zero(), zeros);  // NaN where a value is not finite
  }
  const float max = MaxLanes(largest);
  const float inverse = max > 0 ? most / max : 0.0f;
  for (int64_t j = 0; j < group; j += 16) {
    const int64_t n = group - j < 16 ? group - j : 16;
    const F32x16 value = n == 16 ? Load(x + j) : LoadPart(x + j, n);
    const I32x16 rounded = RoundToInt(Mul(value, Set1(inverse)));
    alignas(16) int8_t bytes[2][16];
    if (high == nullptr) {
      StoreBytes(rounded, bytes[0]);
      TransposeBytes(bytes[0], low + j);
    } else {
      SplitBytes(rounded, bytes[0], bytes[1]);
      __builtin_memcpy(high + j, bytes[0], static_cast<size_t>(n));
      __builtin_memcpy(low + j, bytes[1], static_cast<size_t>(n));
    }
  }
  return max / most + SumLanes(zeros);
}

static void QuantiseRows(F32View x, int64_t group, int64_t unit, int64_t begin, int64_t end,
                         const QuantisedRows& out) {
  for (int64_t t = begin; t < end; ++t) {
    int8_t* high = out.high == nullptr ? nullptr : out.high + t * x.cols;
    int8_t* low = out.low + t * x.cols;
    for (int64_t k = 0; k < x.cols; k += group) {
      out.scales[t * (x.cols / group) + k / group] =
          QuantiseGroup(x.row(t) + k, group, high == nullptr ? nullptr : high + k, low + k);
    }
    for (int64_t k = 0; k < x.cols; k += unit) {
      int32_t sum = 0;
      for (int64_t j = k; j < k + unit; ++j) sum += low[j];
      for (int64_t j = k; high != nullptr && j < k + unit; ++j) sum += 256 * high[j];
      out.sums[t * (x.cols / unit) + k / unit] = sum;
    }
  }
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
