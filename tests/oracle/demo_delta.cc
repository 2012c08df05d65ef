// The gated delta rule and its gradient, one token after another, in f32. For demo_delta.py, which
// compiles it: a training step spends a fraction here of what the chunked form takes in PyTorch.
//
// Shapes: q k [B, T, K, D], v o [B, T, K, R, D], decay beta [B, T, K, R], all contiguous; value
// head r of key head h has state S [D key][D value], zero at the start. Each token:
//   S <- decay S;  delta = beta (v - k S);  S <- S + k delta;  o = q S
// Threads share out the B x K key heads, so nothing is added up across threads.
#include <algorithm>
#include <cstdint>
#include <vector>

namespace {

constexpr int D = 32;      // state size
constexpr int kKept = 16;  // tokens between the states that the gradient starts again from

struct Sizes {
  int64_t batch, tokens, keys, rep;
};

struct Token {
  int64_t key, value;  // offsets in elements: of q and k; of v and o (divided by D: decay and beta)
};

Token At(const Sizes& s, int64_t b, int64_t t, int64_t h, int64_t r) {
  const int64_t key = (b * s.tokens + t) * s.keys + h;
  return {key * D, (key * s.rep + r) * D};
}

// One token: advances S and fills delta [D] and, where o is given, o [D].
void Advance(float* S, const float* k, const float* v, float decay, float beta, float* delta,
             const float* q, float* o) {
  float read[D] = {};
  for (int i = 0; i < D; ++i) {
    for (int j = 0; j < D; ++j) {
      S[i * D + j] *= decay;
      read[j] += k[i] * S[i * D + j];
    }
  }
  for (int j = 0; j < D; ++j) delta[j] = beta * (v[j] - read[j]);
  float out[D] = {};
  for (int i = 0; i < D; ++i) {
    for (int j = 0; j < D; ++j) {
      S[i * D + j] += k[i] * delta[j];
      if (q) out[j] += q[i] * S[i * D + j];
    }
  }
  if (o) std::copy(out, out + D, o);
}

float Dot(const float* a, const float* b) {
  float sum = 0;
  for (int j = 0; j < D; ++j) sum += a[j] * b[j];
  return sum;
}

}  // namespace

extern "C" void delta_forward(const Sizes* sizes, const float* q, const float* k, const float* v,
                              const float* decay, const float* beta, float* o) {
  const Sizes s = *sizes;
#pragma omp parallel for collapse(3) schedule(dynamic)
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.keys; ++h) {
      for (int64_t r = 0; r < s.rep; ++r) {
        float S[D * D] = {}, delta[D];
        for (int64_t t = 0; t < s.tokens; ++t) {
          const Token at = At(s, b, t, h, r);
          Advance(S, k + at.key, v + at.value, decay[at.value / D], beta[at.value / D], delta,
                  q + at.key, o + at.value);
        }
      }
    }
  }
}

namespace {

struct Gradients {
  float *q, *k, *v, *decay, *beta;
};

// The gradient of one token. G holds that of the state after it and becomes that of the state
// before it; `before` is that state.
void Retreat(float* G, const float* before, const Token at, const float* q, const float* k,
             const float* v, float decay, float beta, const float* d_out, const Gradients& g) {
  float S[D * D], delta[D], d_delta[D] = {}, raw[D];
  std::copy(before, before + D * D, S);
  Advance(S, k, v, decay, beta, delta, nullptr, nullptr);
  for (int i = 0; i < D; ++i) {
    g.q[at.key + i] += Dot(S + i * D, d_out);
    for (int j = 0; j < D; ++j) {
      G[i * D + j] += q[i] * d_out[j];
      d_delta[j] += k[i] * G[i * D + j];
    }
    g.k[at.key + i] += Dot(G + i * D, delta);
  }
  // v - k S, also where beta is zero.
  std::copy(v, v + D, raw);
  for (int i = 0; i < D; ++i) {
    for (int j = 0; j < D; ++j) raw[j] -= k[i] * decay * before[i * D + j];
  }
  g.beta[at.value / D] = Dot(d_delta, raw);
  for (int j = 0; j < D; ++j) g.v[at.value + j] = beta * d_delta[j];
  float d_decay = 0;
  for (int i = 0; i < D; ++i) {
    float d_key = 0, sum = 0;
    for (int j = 0; j < D; ++j) {
      const float d_read = -beta * d_delta[j];
      d_key += decay * before[i * D + j] * d_read;
      const float d_state = G[i * D + j] + k[i] * d_read;
      sum += d_state * before[i * D + j];
      G[i * D + j] = decay * d_state;
    }
    g.k[at.key + i] += d_key;
    d_decay += sum;
  }
  g.decay[at.value / D] = d_decay;
}

}  // namespace

// Gradients of q and k must come in as zeros.
extern "C" void delta_backward(const Sizes* sizes, const float* q, const float* k, const float* v,
                               const float* decay, const float* beta, const float* d_out,
                               float* d_q, float* d_k, float* d_v, float* d_decay, float* d_beta) {
  const Sizes s = *sizes;
  const Gradients g = {d_q, d_k, d_v, d_decay, d_beta};
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.keys; ++h) {
      std::vector<float> kept((s.tokens / kKept + 1) * D * D), recent(kKept * D * D);
      for (int64_t r = 0; r < s.rep; ++r) {
        float S[D * D] = {}, G[D * D] = {}, delta[D];
        const auto advance = [&](int64_t t) {
          const Token at = At(s, b, t, h, r);
          Advance(S, k + at.key, v + at.value, decay[at.value / D], beta[at.value / D], delta,
                  nullptr, nullptr);
        };
        for (int64_t t = 0; t < s.tokens; ++t) {
          if (t % kKept == 0) std::copy(S, S + D * D, &kept[t / kKept * D * D]);
          advance(t);
        }
        for (int64_t start = (s.tokens - 1) / kKept * kKept; start >= 0; start -= kKept) {
          const int64_t end = std::min<int64_t>(start + kKept, s.tokens);
          std::copy_n(&kept[start / kKept * D * D], D * D, S);
          for (int64_t t = start; t < end; ++t) {
            std::copy(S, S + D * D, &recent[(t - start) * D * D]);
            advance(t);
          }
          for (int64_t t = end - 1; t >= start; --t) {
            const Token at = At(s, b, t, h, r);
            Retreat(G, &recent[(t - start) * D * D], at, q + at.key, k + at.key, v + at.value,
                    decay[at.value / D], beta[at.value / D], d_out + at.value, g);
          }
        }
      }
    }
  }
}
