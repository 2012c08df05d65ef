// The operations of Gated DeltaNet and of the rotation: against published vectors and plain loops
// in double, and the same bits on every instruction set, in any chunks, beside any neighbour.
#include <cmath>

#include "tests/kernels.h"

namespace trine {
namespace {

// ---- rotation

// H x by its definition: H[r][c] = (-1)^popcount(r & c) / sqrt(block).
std::vector<double> Hadamard(const std::vector<double>& x, size_t block) {
  std::vector<double> y(x.size());
  for (size_t r = 0; r < x.size(); ++r) {
    for (size_t c = 0; c < block; ++c) {
      const double value = x[r / block * block + c];
      y[r] += __builtin_popcountll(r % block & c) % 2 == 0 ? value : -value;
    }
    y[r] /= std::sqrt(static_cast<double>(block));
  }
  return y;
}

TEST(Rotate, Vectors_AreMet) {
  const nlohmann::json vectors = ReadJson(DataPath("vectors.json"))["hadamard"];
  auto backend = MakeBackend("generic");
  Matrix<float> x(1, 8), y(1, 8), back(1, 8);
  x.values = vectors["block8"]["x"].get<std::vector<float>>();
  const auto signs = vectors["block8"]["signs"].get<std::vector<float>>();
  backend->Rotate(x.view(), signs.data(), 8, Backend::Rotation::kForward, y.view());
  backend->Rotate(y.view(), signs.data(), 8, Backend::Rotation::kInverse, back.view());
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(y.at(0, i), vectors["block8"]["forward"][static_cast<size_t>(i)], 1e-6 * 10);
    EXPECT_NEAR(back.at(0, i), x.at(0, i), 1e-6 * 10);
  }
  Matrix<float> wide(1, 1024), rotated(1, 1024);
  const std::vector<float> ones(1024, 1.0f);
  for (int64_t i = 0; i < 1024; ++i) {
    wide.at(0, i) = static_cast<float>((37 * i) % 101) / 101 - 0.5f;
  }
  backend->Rotate(wide.view(), ones.data(), 1024, Backend::Rotation::kForward, rotated.view());
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(rotated.values[i], vectors["block1024"]["first8"][i], 2e-6);
  }
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(rotated.values[1020 + i], vectors["block1024"]["last4"][i], 2e-6);
  }
  std::fill(wide.values.begin(), wide.values.end(), 0.0f);
  wide.at(0, 5) = 1;
  backend->Rotate(wide.view(), ones.data(), 1024, Backend::Rotation::kForward, wide.view());
  for (int r = 0; r < 1024; ++r) {
    ASSERT_EQ(wide.at(0, r), (__builtin_popcount(r & 5) % 2 == 0 ? 1 : -1) / 32.0f);
  }
}

// Each of log2(block) stages rounds once: the error stays below their number times eps times the
// block's norm.
TEST(Rotate, EveryUnit_MatchesDefinitionAndSameBits) {
  for (const int64_t block : {16, 64, 128, 1024}) {
    const int64_t cols = 3 * block;
    Matrix<float> x = RandomMatrix(2, cols, 21), signs = RandomMatrix(1, cols, 22);
    for (float& sign : signs.values) sign = sign < 0 ? -1.0f : 1.0f;
    std::vector<float> reference;
    for (const char* unit : Units()) {
      auto backend = MakeBackend(unit, 2);
      Matrix<float> y(2, cols), back(2, cols);
      backend->Rotate(x.view(), signs.values.data(), block, Backend::Rotation::kForward, y.view());
      if (reference.empty()) reference = y.values;
      EXPECT_TRUE(SameBits(y.values, reference)) << unit;
      backend->Rotate(y.view(), signs.values.data(), block, Backend::Rotation::kInverse,
                      back.view());
      const double bound = 12 * 0x1p-24 * 4 * std::sqrt(static_cast<double>(block));
      for (int64_t t = 0; t < 2; ++t) {
        std::vector<double> signed_x;
        for (int64_t c = 0; c < cols; ++c) signed_x.push_back(x.at(t, c) * signs.at(0, c));
        const std::vector<double> expected = Hadamard(signed_x, static_cast<size_t>(block));
        for (int64_t c = 0; c < cols; ++c) {
          ASSERT_NEAR(y.at(t, c), expected[static_cast<size_t>(c)], bound);
          ASSERT_NEAR(back.at(t, c), x.at(t, c), 2 * bound);
        }
      }
    }
  }
}

// ---- Gated DeltaNet

double Sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

struct DeltaCase {
  DeltaLayout layout{2, 6, 24, 4};
  Matrix<float> qkv = RandomMatrix(9, layout.channels(), 31);
  Matrix<float> decay = RandomMatrix(9, layout.value_heads, 32);
  Matrix<float> beta = RandomMatrix(9, layout.value_heads, 33);
  Matrix<float> conv = RandomMatrix(layout.channels(), layout.taps, 34);
};

// One sequence of the case in steps of `chunk` tokens, in slot 1 of a dirty state.
struct DeltaRun {
  std::vector<float> qkv, out;
};
DeltaRun RunDelta(const DeltaCase& c, const char* unit, int threads, int64_t chunk) {
  auto backend = MakeBackend(unit, threads);
  const DeltaLayout& layout = c.layout;
  std::vector<float> conv(static_cast<size_t>(2 * layout.conv_floats()), 7.0f);
  std::vector<float> delta(static_cast<size_t>(2 * layout.delta_floats()), 7.0f);
  const DeltaStates states{conv.data(), delta.data(), layout};
  Matrix<float> qkv = c.qkv, decay = c.decay, beta = c.beta;
  for (float& value : decay.values) value = static_cast<float>(Sigmoid(value));
  for (float& value : beta.values) value = static_cast<float>(Sigmoid(value));
  Matrix<float> out(qkv.rows, layout.value_heads * layout.head_dim);
  const std::vector<int32_t> slots = {1};
  for (int64_t first = 0; first < qkv.rows; first += chunk) {
    const int64_t n = std::min(chunk, qkv.rows - first);
    std::vector<int32_t> positions, sequences(static_cast<size_t>(n), 0);
    for (int64_t i = 0; i < n; ++i) positions.push_back(static_cast<int32_t>(first + i));
    const TokenPlaces places{positions, sequences, {}, {}, slots};
    const F32View rows = qkv.view().Rows(first, n);
    backend->CausalConvSilu(rows, c.conv.values.data(), places, states);
    backend->GatedDeltaRule(rows, decay.view().Rows(first, n), beta.view().Rows(first, n), places,
                            states, out.view().Rows(first, n));
  }
  EXPECT_TRUE(std::all_of(conv.begin(), conv.begin() + layout.conv_floats(),
                          [](float v) { return v == 7.0f; }));
  return {qkv.values, out.values};
}

TEST(DeltaNet, UnitsThreadsChunks_SameBits) {
  const DeltaCase c;
  const DeltaRun reference = RunDelta(c, "generic", 1, 9);
  for (const char* unit : Units()) {
    for (const int threads : {1, 3}) {
      for (const int64_t chunk : {1, 2, 4, 9}) {
        const DeltaRun run = RunDelta(c, unit, threads, chunk);
        EXPECT_TRUE(SameBits(run.qkv, reference.qkv)) << unit << " chunks of " << chunk;
        EXPECT_TRUE(SameBits(run.out, reference.out)) << unit << " chunks of " << chunk;
      }
    }
  }
}

// The recurrence of the paper in double, over the convolved inputs that the backend gives. Values
// stay of order 1 to 100 over nine tokens and 24 keys: f32 errors below 1e-5 of the largest.
TEST(DeltaNet, Recurrence_MatchesDouble) {
  const DeltaCase c;
  const DeltaRun run = RunDelta(c, "generic", 1, 9);
  const auto [keys, values, dim, taps, drafts] = c.layout;
  const auto at = [&](int64_t t, int64_t channel) {
    return static_cast<double>(run.qkv[static_cast<size_t>(t * c.layout.channels() + channel)]);
  };
  for (int64_t t = 0; t < 9; ++t) {
    for (int64_t channel = 0; channel < c.layout.channels(); ++channel) {
      double sum = 0;
      for (int64_t j = 0; j < taps; ++j) {
        const int64_t from = t - (taps - 1) + j;
        if (from >= 0) {
          sum += static_cast<double>(c.conv.values[static_cast<size_t>(channel * taps + j)]) *
                 c.qkv.values[static_cast<size_t>(from * c.layout.channels() + channel)];
        }
      }
      ASSERT_NEAR(at(t, channel), sum * Sigmoid(sum), 1e-5);
    }
  }
  double worst = 0, largest = 0;
  for (int64_t v = 0; v < values; ++v) {
    const int64_t k = v / (values / keys);
    std::vector<double> state(static_cast<size_t>(dim * dim), 0.0);
    for (int64_t t = 0; t < 9; ++t) {
      const auto gate = [&](const Matrix<float>& m) {
        return Sigmoid(m.values[static_cast<size_t>(t * values + v)]);
      };
      for (double& s : state) s *= gate(c.decay);
      for (int64_t j = 0; j < dim; ++j) {
        double known = 0, out = 0;
        for (int64_t i = 0; i < dim; ++i) {
          known += state[static_cast<size_t>(i * dim + j)] * at(t, (keys + k) * dim + i);
        }
        const double delta = gate(c.beta) * (at(t, (2 * keys + v) * dim + j) - known);
        for (int64_t i = 0; i < dim; ++i) {
          double& s = state[static_cast<size_t>(i * dim + j)];
          s += at(t, (keys + k) * dim + i) * delta;
          out += s * at(t, k * dim + i);
        }
        const double got = run.out[static_cast<size_t>((t * values + v) * dim + j)];
        worst = std::max(worst, std::fabs(got - out));
        largest = std::max(largest, std::fabs(out));
      }
    }
  }
  EXPECT_LE(worst, 1e-5 * largest);
}

// The published two tokens, from raw gates and unnormalised keys on.
TEST(DeltaNet, Vectors_AreMet) {
  const nlohmann::json vectors = ReadJson(DataPath("vectors.json"))["gated_delta_rule"];
  auto backend = MakeBackend("generic");
  const DeltaLayout layout{1, 1, 2, 2};
  std::vector<float> conv(2 * 3, 0.0f), delta(4, 0.0f);
  const DeltaStates states{conv.data(), delta.data(), layout};
  const float rate = vectors["ssm_a"], bias = vectors["dt_bias"];
  for (size_t t = 0; t < 2; ++t) {
    const auto& token = vectors["tokens"][t];
    Matrix<float> qkv(1, 6), out(1, 2), decay(1, 1), beta(1, 1);
    const double q0 = token["q"][0], q1 = token["q"][1], k0 = token["k"][0], k1 = token["k"][1];
    const double q_norm = std::hypot(q0, q1) * std::sqrt(2), k_norm = std::hypot(k0, k1);
    qkv.values = {static_cast<float>(q0 / q_norm),
                  static_cast<float>(q1 / q_norm),
                  static_cast<float>(k0 / k_norm),
                  static_cast<float>(k1 / k_norm),
                  token["v"][0],
                  token["v"][1]};
    decay.values = {token["alpha"]};
    beta.values = {token["beta"]};
    backend->DeltaGates(decay.view(), beta.view(), &rate, &bias);
    const auto& step = vectors["steps"][t];
    EXPECT_NEAR(decay.at(0, 0), step["decay"], 1e-6);
    EXPECT_NEAR(beta.at(0, 0), step["beta"], 1e-6);
    const std::vector<int32_t> positions = {static_cast<int32_t>(t)}, zero = {0};
    backend->GatedDeltaRule(qkv.view(), decay.view(), beta.view(), {positions, zero, {}, {}, zero},
                            states, out.view());
    for (size_t j = 0; j < 2; ++j) {
      EXPECT_NEAR(out.values[j], step["o"][j], 1e-6);
      EXPECT_NEAR(delta[j], step["S"][0][j], 1e-6);
      EXPECT_NEAR(delta[2 + j], step["S"][1][j], 1e-6);
    }
  }
}

TEST(DeltaNet, Neighbours_DoNotTouchEachOther) {
  const DeltaCase c;
  const DeltaRun alone = RunDelta(c, "generic", 1, 9);
  auto backend = MakeBackend("generic");
  const DeltaLayout& layout = c.layout;
  std::vector<float> conv(static_cast<size_t>(3 * layout.conv_floats()), 0.0f);
  std::vector<float> delta(static_cast<size_t>(3 * layout.delta_floats()), 0.0f);
  // Rows 0 to 8 twice, as two sequences of one step in slots 2 and 0.
  Matrix<float> qkv(18, layout.channels()), decay(18, 6), beta(18, 6), out(18, 6 * 24);
  std::vector<int32_t> positions, sequences;
  for (int64_t t = 0; t < 18; ++t) {
    positions.push_back(static_cast<int32_t>(t % 9));
    sequences.push_back(static_cast<int32_t>(t / 9));
    std::copy_n(&c.qkv.values[static_cast<size_t>(t % 9 * layout.channels())], layout.channels(),
                &qkv.at(t, 0));
    for (int64_t v = 0; v < 6; ++v) {
      decay.at(t, v) =
          static_cast<float>(Sigmoid(c.decay.values[static_cast<size_t>(t % 9 * 6 + v)]));
      beta.at(t, v) =
          static_cast<float>(Sigmoid(c.beta.values[static_cast<size_t>(t % 9 * 6 + v)]));
    }
  }
  const std::vector<int32_t> slots = {2, 0};
  const TokenPlaces places{positions, sequences, {}, {}, slots};
  const DeltaStates states{conv.data(), delta.data(), layout};
  backend->CausalConvSilu(qkv.view(), c.conv.values.data(), places, states);
  backend->GatedDeltaRule(qkv.view(), decay.view(), beta.view(), places, states, out.view());
  const auto half = static_cast<std::ptrdiff_t>(out.values.size() / 2);
  EXPECT_TRUE(SameBits(alone.out, {out.values.begin(), out.values.begin() + half}));
  EXPECT_TRUE(SameBits(alone.out, {out.values.begin() + half, out.values.end()}));
}

// ---- drafts

// Tokens of one sequence, and what each gives when they come one by one, none of them a draft.
struct Trace {
  Trace(const DeltaLayout& layout, const Matrix<float>& weights, int64_t tokens, uint32_t seed)
      : qkv(RandomMatrix(tokens, layout.channels(), seed)),
        decay(RandomMatrix(tokens, layout.value_heads, seed + 1)),
        beta(RandomMatrix(tokens, layout.value_heads, seed + 2)),
        convolved(qkv),
        out(tokens, layout.value_heads * layout.head_dim) {
    auto backend = MakeBackend("generic");
    for (float& value : decay.values) value = static_cast<float>(Sigmoid(value));
    for (float& value : beta.values) value = static_cast<float>(Sigmoid(value));
    std::vector<float> conv(static_cast<size_t>(layout.conv_floats()));
    std::vector<float> delta(static_cast<size_t>(layout.delta_floats()));
    const DeltaStates states{conv.data(), delta.data(), layout};
    const std::vector<int32_t> zero = {0};
    for (int64_t t = 0; t < tokens; ++t) {
      const std::vector<int32_t> position = {static_cast<int32_t>(t)};
      const TokenPlaces places{position, zero, {}, {}, zero};
      backend->CausalConvSilu(convolved.view().Rows(t, 1), weights.values.data(), places, states);
      backend->GatedDeltaRule(convolved.view().Rows(t, 1), decay.view().Rows(t, 1),
                              beta.view().Rows(t, 1), places, states, out.view().Rows(t, 1));
      convs.push_back(conv);
      deltas.push_back(delta);
    }
  }

  Matrix<float> qkv, decay, beta;
  Matrix<float> convolved, out;
  std::vector<std::vector<float>> convs, deltas;  // the states after each token
  int64_t next = 0, accepted = 0;                 // how far a run is: RunDrafts
};

std::vector<float> Part(const std::vector<float>& values, int64_t first, int64_t n) {
  return {values.begin() + first, values.begin() + first + n};
}
std::vector<float> Row(Matrix<float>& m, int64_t r) {
  return Part(m.values, r * m.cols, m.cols);
}

// Some next tokens of one sequence of a run.
struct DraftStep {
  Trace* trace;
  int32_t slot;
  int64_t first, certain, right, wrong;  // tokens of the trace, then what is not in it
};

// Tokens, drafts that are right and drafts that are not, as many as there may be; of the right ones
// some are accepted.
DraftStep TakeStep(Trace& trace, int32_t slot, int64_t most_drafts, std::mt19937& random) {
  const auto up_to = [&](int64_t most) {
    return std::uniform_int_distribution<int64_t>(0, most)(random);
  };
  const int64_t first = trace.next + trace.accepted, left = trace.qkv.rows - first;
  const int64_t certain = 1 + up_to(std::min<int64_t>(2, left - 1));
  const int64_t right = up_to(std::min(most_drafts, left - certain));
  return {&trace, slot, first, certain, right, up_to(most_drafts - right)};
}

// The steps side by side, and all that they give against the traces.
void RunDraftStep(Backend& backend, const DeltaStates& states, const Matrix<float>& weights,
                  const std::vector<DraftStep>& steps) {
  const DeltaLayout& layout = states.layout;
  std::vector<int32_t> positions, sequences, slots, drafts, accepted;
  for (const DraftStep& step : steps) {
    for (int64_t i = 0; i < step.certain + step.right + step.wrong; ++i) {
      positions.push_back(static_cast<int32_t>(step.first + i));
      sequences.push_back(static_cast<int32_t>(slots.size()));
    }
    slots.push_back(step.slot);
    drafts.push_back(static_cast<int32_t>(step.right + step.wrong));
    accepted.push_back(static_cast<int32_t>(step.trace->accepted));
  }
  const auto tokens = std::ssize(positions);
  Matrix<float> qkv(tokens, layout.channels()), decay(tokens, layout.value_heads);
  Matrix<float> beta(tokens, layout.value_heads);
  Matrix<float> out(tokens, layout.value_heads * layout.head_dim);
  for (Matrix<float>* m : {&qkv, &decay, &beta}) std::fill(m->values.begin(), m->values.end(), NAN);
  int64_t row = 0;
  for (const DraftStep& step : steps) {
    const int64_t known = step.certain + step.right;
    backend.Copy(step.trace->qkv.view().Rows(step.first, known), qkv.view().Rows(row, known));
    backend.Copy(step.trace->decay.view().Rows(step.first, known), decay.view().Rows(row, known));
    backend.Copy(step.trace->beta.view().Rows(step.first, known), beta.view().Rows(row, known));
    row += known + step.wrong;
  }
  const TokenPlaces places{positions, sequences, {}, {}, slots, drafts, accepted};
  backend.CausalConvSilu(qkv.view(), weights.values.data(), places, states);
  backend.GatedDeltaRule(qkv.view(), decay.view(), beta.view(), places, states, out.view());
  row = 0;
  for (const DraftStep& step : steps) {
    for (int64_t i = 0; i < step.certain + step.right; ++i) {
      EXPECT_TRUE(SameBits(Row(qkv, row + i), Row(step.trace->convolved, step.first + i)));
      EXPECT_TRUE(SameBits(Row(out, row + i), Row(step.trace->out, step.first + i)));
    }
    row += step.certain + step.right + step.wrong;
    const auto last = static_cast<size_t>(step.first + step.certain - 1);
    const int64_t conv = layout.conv_floats(), delta = layout.delta_floats();
    const float *c = states.conv + step.slot * conv, *d = states.delta + step.slot * delta;
    EXPECT_TRUE(SameBits({c, c + conv}, step.trace->convs[last]));
    EXPECT_TRUE(SameBits({d, d + delta}, step.trace->deltas[last]));
  }
}

// Three sequences in random steps, from dirty states and logs. A wrong draft is not a number, and
// makes what it touches none.
void RunDrafts(Backend& backend, const DeltaLayout& layout, const Matrix<float>& weights,
               std::vector<Trace>& traces, std::mt19937& random) {
  std::vector<float> conv(static_cast<size_t>(4 * layout.conv_floats()), 7.0f);
  std::vector<float> delta(static_cast<size_t>(4 * layout.delta_floats()), 7.0f);
  std::vector<float> log(static_cast<size_t>(4 * layout.log_floats()), 7.0f);
  const DeltaStates states{conv.data(), delta.data(), layout, log.data()};
  for (Trace& trace : traces) trace.next = trace.accepted = 0;
  for (;;) {
    std::vector<DraftStep> steps;
    bool all_done = true;
    for (size_t s = 0; s < traces.size(); ++s) {
      if (traces[s].next + traces[s].accepted == traces[s].qkv.rows) continue;
      all_done = false;
      if (random() % 4 == 0) continue;  // its log waits
      const auto slot = static_cast<int32_t>((s + 2) % 4);
      steps.push_back(TakeStep(traces[s], slot, layout.drafts, random));
    }
    if (all_done) return;
    RunDraftStep(backend, states, weights, steps);
    for (const DraftStep& step : steps) {
      step.trace->next = step.first + step.certain;
      step.trace->accepted = std::uniform_int_distribution<int64_t>(0, step.right)(random);
    }
  }
}

TEST(DeltaNet, DraftsInAnySteps_SameBitsAsTokensOneByOne) {
  std::mt19937 random(51);
  for (int64_t taps = 2; taps <= kMaxConvTaps; ++taps) {
    const int64_t dim = taps % 2 == 0 ? 24 : 16;
    const DeltaLayout layout{2, 6, dim, taps, /*drafts=*/1 + taps % 5};
    const Matrix<float> weights = RandomMatrix(layout.channels(), taps, 52);
    std::vector<Trace> traces;
    for (const uint32_t seed : {60u, 70u, 80u}) traces.emplace_back(layout, weights, 30, seed);
    for (const char* unit : Units()) {
      for (const int threads : {1, 3}) {
        SCOPED_TRACE(std::string(unit) + " taps " + std::to_string(taps));
        RunDrafts(*MakeBackend(unit, threads), layout, weights, traces, random);
      }
    }
  }
}

// Softplus by its series and e^x within 2 ulp: the decay exp(rate softplus) moves by their relative
// errors times its exponent, below 90 here.
TEST(DeltaGates, WholeRange_MatchesDoubleAndSameBits) {
  Matrix<float> x(1, 4001), rate(1, 4001), zero(1, 4001);
  for (int64_t i = 0; i < x.cols; ++i) {
    x.at(0, i) = static_cast<float>(i - 2000) / 25;
    rate.at(0, i) = -0.03f * static_cast<float>(1 + i % 30);
  }
  std::vector<float> reference;
  for (const char* unit : Units()) {
    auto backend = MakeBackend(unit);
    Matrix<float> decay = x, beta = x;
    backend->DeltaGates(decay.view(), beta.view(), rate.values.data(), zero.values.data());
    for (int64_t i = 0; i < x.cols; ++i) {
      const double value = x.at(0, i),
                   softplus = std::max(value, 0.0) + std::log1p(std::exp(-std::fabs(value)));
      const double expected = std::exp(rate.at(0, i) * softplus);
      ASSERT_NEAR(decay.at(0, i), expected, 90 * 0x1p-22 * expected) << value;
      ASSERT_NEAR(beta.at(0, i), Sigmoid(value), 4 * 0x1p-23 * Sigmoid(value)) << value;
    }
    if (reference.empty()) reference = decay.values;
    EXPECT_TRUE(SameBits(decay.values, reference)) << unit;
  }
}

TEST(SigmoidMul, EveryUnit_MatchesDoubleAndSameBits) {
  Matrix<float> gate = RandomMatrix(3, 77, 41), x = RandomMatrix(3, 77, 42);
  std::vector<float> reference;
  for (const char* unit : Units()) {
    Matrix<float> y = x;
    MakeBackend(unit)->SigmoidMul(gate.view(), y.view());
    for (size_t i = 0; i < y.values.size(); ++i) {
      const double expected = x.values[i] * Sigmoid(gate.values[i]);
      ASSERT_NEAR(y.values[i], expected, 4 * 0x1p-23 * std::fabs(expected));
    }
    if (reference.empty()) reference = y.values;
    EXPECT_TRUE(SameBits(y.values, reference)) << unit;
  }
}

}  // namespace
}  // namespace trine
