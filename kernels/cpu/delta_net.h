// Gated DeltaNet (Yang, Kautz, Hatamizadeh 2024): short convolution, gates and the delta rule. Part
// of a unit, see simd.h.

static inline F32x16 Sigmoid(F32x16 x) {
  return Div(Set1(1.0f), Add(Set1(1.0f), Exp(Mul(x, Set1(-1.0f)))));
}

// log(1 + e^x) = max(x, 0) + log(1 + t), t = e^-|x|; log(1 + t) = 2 atanh(z), z = t / (2 + t) <=
// 1/3, by its series to z^15 (remainder below 2^-28 relative).
static inline F32x16 Softplus(F32x16 x) {
  const F32x16 t = Exp(Mul(Abs(x), Set1(-1.0f)));
  const F32x16 z = Div(t, Add(t, Set1(2.0f)));
  const F32x16 square = Mul(z, z);
  F32x16 series = Set1(1.0f / 15);
  for (const float odd : {13.0f, 11.0f, 9.0f, 7.0f, 5.0f, 3.0f, 1.0f}) {
    series = Fma(series, square, Set1(1.0f / odd));
  }
  return Fma(Add(z, z), series, Max(Zero(), x));
}

// fn(i, n): the lanes of elements i .. i + n, n <= 16.
template <typename Fn>
static inline void ForLanes(int64_t n, Fn fn) {
  for (int64_t i = 0; i < n; i += 16) fn(i, n - i < 16 ? n - i : 16);
}

static void SigmoidMulRow(const float* gate, int64_t n, float* x) {
  ForLanes(n, [&](int64_t i, int64_t m) {
    StorePart(x + i, Mul(LoadPart(x + i, m), Sigmoid(LoadPart(gate + i, m))), m);
  });
}

static void DeltaGatesRow(const float* rate, const float* bias, int64_t n, float* decay,
                          float* beta) {
  ForLanes(n, [&](int64_t i, int64_t m) {
    const F32x16 step = Softplus(Add(LoadPart(decay + i, m), LoadPart(bias + i, m)));
    StorePart(decay + i, Exp(Mul(LoadPart(rate + i, m), step)), m);
    StorePart(beta + i, Sigmoid(LoadPart(beta + i, m)), m);
  });
}

// state [taps - 1][all channels]: the inputs before the first row, the oldest first; afterwards
// those before the row to come.
static void ConvSilu(F32View x, const float* weights, int64_t taps, float* state, bool fresh,
                     int64_t begin, int64_t end) {
  const int64_t channels = x.cols, past = taps - 1;
  for (int64_t c = begin; c < end; c += 16) {
    const int64_t n = end - c < 16 ? end - c : 16;
    alignas(64) float by_tap[kMaxConvTaps][16] = {};
    F32x16 window[kMaxConvTaps];  // the inputs that the taps meet
    for (int64_t j = 0; j < taps; ++j) {
      for (int64_t lane = 0; lane < n; ++lane) by_tap[j][lane] = weights[(c + lane) * taps + j];
    }
    for (int64_t j = 0; j < past; ++j) {
      window[j] = fresh ? Zero() : LoadPart(state + j * channels + c, n);
    }
    for (int64_t t = 0; t < x.rows; ++t) {
      window[past] = LoadPart(x.row(t) + c, n);
      F32x16 sum = Zero();
      for (int64_t j = 0; j < taps; ++j) sum = Fma(Load(by_tap[j]), window[j], sum);
      StorePart(x.row(t) + c, Silu(sum), n);
      for (int64_t j = 0; j < past; ++j) window[j] = window[j + 1];
    }
    for (int64_t j = 0; j < past; ++j) StorePart(state + j * channels + c, window[j], n);
  }
}

// Up to sixteen columns of one head's state through all tokens.
static inline void DeltaColumns(const DeltaTask& task, int64_t head, int64_t column, int64_t n) {
  const DeltaLayout& layout = task.layout;
  const int64_t dim = layout.head_dim, keys = layout.key_heads * dim;
  const int64_t key_head = head * layout.key_heads / layout.value_heads;
  float* state = task.state + head * dim * dim + column;  // [D rows of dim]
  if (task.fresh) {
    for (int64_t i = 0; i < dim; ++i) StorePart(state + i * dim, Zero(), n);
  }
  for (int64_t t = 0; t < task.qkv.rows; ++t) {
    const float* q = task.qkv.row(t) + key_head * dim;
    const float* k = q + keys;
    const F32x16 v = LoadPart(task.qkv.row(t) + 2 * keys + head * dim + column, n);
    const F32x16 decay = Set1(task.decay.row(t)[head]);
    F32x16 known = Zero();  // S^T k of the decayed state
    for (int64_t i = 0; i < dim; ++i) {
      const F32x16 row = Mul(LoadPart(state + i * dim, n), decay);
      StorePart(state + i * dim, row, n);
      known = Fma(row, Set1(k[i]), known);
    }
    const F32x16 delta = Mul(Sub(v, known), Set1(task.beta.row(t)[head]));
    F32x16 out = Zero();
    for (int64_t i = 0; i < dim; ++i) {
      const F32x16 row = Fma(delta, Set1(k[i]), LoadPart(state + i * dim, n));
      StorePart(state + i * dim, row, n);
      out = Fma(row, Set1(q[i]), out);
    }
    StorePart(task.out.row(t) + head * dim + column, out, n);
  }
}

static void DeltaRule(const DeltaTask& task, int64_t begin, int64_t end) {
  const int64_t dim = task.layout.head_dim;
  for (int64_t at = begin; at < end;) {
    const int64_t column = at % dim;
    int64_t n = dim - column < 16 ? dim - column : 16;
    if (end - at < n) n = end - at;
    DeltaColumns(task, at / dim, column, n);
    at += n;
  }
}
