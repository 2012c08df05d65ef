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
  const auto [keys, values, dim, taps] = c.layout;
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
