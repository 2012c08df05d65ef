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

static void ConvSilu(const ConvTask& task, int64_t begin, int64_t end) {
  const F32View x = task.x, log = task.log;
  const int64_t taps = task.taps, past = taps - 1, channels = x.cols;
  const auto [fresh, drafts, accepted] = task.slot;
  const int64_t certain = x.rows - drafts;
  const float* weights = task.weights;
  float* state = task.state;
  for (int64_t c = begin; c < end; c += 16) {
    const int64_t n = end - c < 16 ? end - c : 16;
    alignas(64) float by_tap[kMaxConvTaps][16] = {};
    F32x16 window[kMaxConvTaps];  // the inputs that the taps meet
    for (int64_t j = 0; j < taps; ++j) {
      for (int64_t lane = 0; lane < n; ++lane) by_tap[j][lane] = weights[(c + lane) * taps + j];
    }
    for (int64_t j = 0; j < past; ++j) {
      const int64_t i = accepted + j;  // of the inputs in the state, then those in the log
      const float* input = (i < past ? state + i * channels : log.row(i - past)) + c;
      window[j] = fresh ? Zero() : LoadPart(input, n);
    }
    const auto convolve = [&](int64_t t) {
      window[past] = LoadPart(x.row(t) + c, n);
      F32x16 sum = Zero();
      for (int64_t j = 0; j < taps; ++j) sum = Fma(Load(by_tap[j]), window[j], sum);
      StorePart(x.row(t) + c, Silu(sum), n);
      for (int64_t j = 0; j < past; ++j) window[j] = window[j + 1];
    };
    for (int64_t t = 0; t < certain; ++t) convolve(t);
    for (int64_t j = 0; j < past; ++j) StorePart(state + j * channels + c, window[j], n);
    for (int64_t t = certain; t < x.rows; ++t) {
      StorePart(log.row(t - certain) + c, LoadPart(x.row(t) + c, n), n);
      convolve(t);
    }
  }
}

// Up to sixteen columns of one head's state, D rows.
struct StateColumns {
  float* data;
  int64_t stride, n;

  F32x16 Row(int64_t i) const { return LoadPart(data + i * stride, n); }
  void SetRow(int64_t i, F32x16 row) const { StorePart(data + i * stride, row, n); }
};

// The state after one token, `to`, from that before it. scratch [D][16] may be either of them.
// fn(i, row i of the new state).
template <typename Fn>
static inline void DeltaUpdate(StateColumns from, StateColumns to, float* scratch, int64_t dim,
                               const float* k, F32x16 v, F32x16 decay, F32x16 beta, Fn fn) {
  F32x16 known = Zero();  // S^T k of the decayed state
  for (int64_t i = 0; i < dim; ++i) {
    const F32x16 row = Mul(from.Row(i), decay);
    Store(scratch + i * 16, row);
    known = Fma(row, Set1(k[i]), known);
  }
  const F32x16 delta = Mul(Sub(v, known), beta);
  for (int64_t i = 0; i < dim; ++i) {
    const F32x16 row = Fma(delta, Set1(k[i]), Load(scratch + i * 16));
    to.SetRow(i, row);
    fn(i, row);
  }
}

// Up to sixteen columns of one head's state through all tokens. Between tokens it is in scratch,
// where its rows lie close together; the slot gets it after the last that is no draft.
static inline void DeltaColumns(const DeltaTask& task, int64_t head, int64_t column, int64_t n) {
  const DeltaLayout& layout = task.layout;
  const int64_t dim = layout.head_dim, keys = layout.key_heads * dim;
  const int64_t k_at = head * layout.key_heads / layout.value_heads * dim;
  const int64_t v_at = keys + head * dim + column;  // both behind q
  alignas(64) float scratch[kMaxHeadDim * 16];
  const StateColumns kept{task.state + head * dim * dim + column, dim, n}, close{scratch, 16, 16};
  StateColumns state = kept;
  if (task.slot.fresh) {
    for (int64_t i = 0; i < dim; ++i) close.SetRow(i, Zero());
    state = close;
  }
  for (int64_t t = 0; t < task.slot.accepted; ++t) {
    const float* kv = task.log.kv.row(t);
    DeltaUpdate(state, close, scratch, dim, kv + k_at, LoadPart(kv + v_at, n),
                Set1(task.log.decay.row(t)[head]), Set1(task.log.beta.row(t)[head]),
                [](int64_t, F32x16) {});
    state = close;
  }
  const int64_t last_certain = task.qkv.rows - task.slot.drafts - 1;
  for (int64_t t = 0; t < task.qkv.rows; ++t) {
    const float *q = task.qkv.row(t) + k_at, *kv = task.qkv.row(t) + keys;
    const StateColumns next = t == last_certain ? kept : close;
    F32x16 out = Zero();
    DeltaUpdate(state, next, scratch, dim, kv + k_at, LoadPart(kv + v_at, n),
                Set1(task.decay.row(t)[head]), Set1(task.beta.row(t)[head]),
                [&](int64_t i, F32x16 row) { out = Fma(row, Set1(q[i]), out); });
    StorePart(task.out.row(t) + head * dim + column, out, n);
    state = next;
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
