// The CPU backend: formats against the bytes of another implementation, every operation against a
// plain loop in double, and every instruction-set unit against the others, bit for bit.
#include "kernels/backend.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstring>
#include <random>

#include "kernels/gumbel.h"
#include "kernels/half.h"
#include "tests/kernels.h"

namespace trine {
namespace {

// ---- matrix products

// |error| <= K eps sum|w x| for f32 sums in any order (Higham 2002, 3.1), and for coded weights
// another sum|w| * half a step of the activation's grid.
TEST(Linear, EveryType_WithinBoundOfDoubleSum) {
  const int64_t rows = 21, cols = 512, tokens = 6;
  auto backend = MakeBackend("generic");
  for (const DType type : kAllTypes) {
    const Stored stored(type, rows, cols, 1);
    const auto weight = stored.Load(*backend, 0);
    Matrix<float> w = stored.Decoded(*backend), x = RandomMatrix(tokens, cols, 2, 50), y(6, rows);
    const Matrix<float> bias = RandomMatrix(1, rows, 3);
    const LinearTask task[] = {{weight.get(), bias.values.data(), y.view()}};
    backend->Linear(x.view(), task);
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t n = 0; n < rows; ++n) {
        double sum = bias.values[static_cast<size_t>(n)], size = std::fabs(sum), steps = 0;
        for (int64_t k = 0; k < cols; ++k) {
          sum += static_cast<double>(w.at(n, k)) * x.at(t, k);
          size += std::fabs(static_cast<double>(w.at(n, k)) * x.at(t, k));
          const int64_t wide = IsTernary(type) ? 128 : 32;  // columns of an activation scale
          float group = 0;
          for (int64_t j = k / wide * wide; j < (k / wide + 1) * wide; ++j) {
            group = std::max(group, std::fabs(x.at(t, j)));
          }
          steps += std::fabs(w.at(n, k)) * group / (IsTernary(type) ? 127 : 32639) * 0.51;
        }
        const double bound =
            static_cast<double>(cols) * 0x1p-23 * size + (Info(type).block_elems > 1 ? steps : 0);
        ASSERT_NEAR(y.at(t, n), sum, bound) << Info(type).name;
      }
    }
  }
}

// A step's tokens at once, and in parts of 1 to 9: tiles of every size, straight from the panels and
// from unpacked ones.
TEST(Linear, UnitsTokensThreads_SameBits) {
  const int64_t rows = 85, cols = 768, tokens = 45;  // a group of four panels and a part of one
  for (const DType type : kAllTypes) {
    for (const int64_t granule : {0, 256, 128, 64, 16}) {
      const Stored stored(type, rows, cols, 4);
      Matrix<float> x = RandomMatrix(tokens, cols, 5, 100);
      std::vector<float> reference;
      std::vector<int64_t> reference_words;
      for (const char* unit : Units()) {
        for (const int threads : {1, 3}) {
          auto backend = MakeBackend(unit, threads);
          const auto weight = stored.Load(*backend, granule);
          Matrix<float> y(tokens, rows);
          Matrix<int64_t> words(tokens, rows + kPartialExtraWords);
          const auto multiply = [&](int64_t first, int64_t n) {
            const F32View part = x.view().Rows(first, n);
            const LinearTask task[] = {{weight.get(), nullptr, y.view().Rows(first, n)}};
            if (granule == 0) backend->Linear(part, task);
            if (granule != 0) backend->LinearPartial(part, *weight, 0, words.view().Rows(first, n));
          };
          if (threads == 1) {
            multiply(0, tokens);
          } else {
            for (int64_t first = 0, n = 1; first < tokens; first += n++) multiply(first, n);
          }
          if (reference.empty()) {
            reference = y.values;
            reference_words = words.values;
          }
          EXPECT_TRUE(SameBits(y.values, reference)) << Info(type).name << " " << unit;
          EXPECT_TRUE(SameBits(words.values, reference_words)) << Info(type).name << " " << unit;
        }
      }
    }
  }
}

// The sums of one row's granules, each from zero, one column after the other.
std::vector<float> GranuleSums(const float* w, const float* x, int64_t cols, int64_t granule) {
  std::vector<float> sums;
  for (int64_t k = 0; k < cols; ++k) {
    if (k % granule == 0) sums.push_back(0);
    sums.back() = std::fma(w[k], x[k], sums.back());
  }
  return sums;
}

// Float weights, to the bit: rows and columns that fill no panel, group, block or line, granules of
// one block, of several and of parts of one, and tokens up to more than a block of them.
TEST(Linear, FloatTypes_AreSequentialSums) {
  const int64_t rows = 85, cols = 203, most = 521;
  const Matrix<float> bias = RandomMatrix(1, rows, 14);
  Matrix<float> x = RandomMatrix(most, cols, 13);
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Stored stored(type, rows, cols, 12);
    Matrix<float> w = stored.Decoded(*MakeBackend("generic")), expected(most, rows);
    for (const int64_t granule : {int64_t{0}, int64_t{160}, int64_t{48}}) {
      Matrix<int64_t> expected_words(most, rows);
      for (int64_t t = 0; t < most; ++t) {
        for (int64_t n = 0; n < rows; ++n) {
          const auto sums =
              GranuleSums(&w.at(n, 0), &x.at(t, 0), cols, granule == 0 ? cols : granule);
          expected.at(t, n) = sums[0] + bias.values[static_cast<size_t>(n)];
          for (const float sum : sums) {
            expected_words.at(t, n) +=
                static_cast<int64_t>(std::nearbyint(static_cast<double>(sum) * kPartialScale));
          }
        }
      }
      for (const char* unit : Units()) {
        auto backend = MakeBackend(unit, 3);
        const auto weight = stored.Load(*backend, granule);
        for (const int64_t tokens : {int64_t{1}, int64_t{5}, int64_t{6}, int64_t{10}, most}) {
          Matrix<float> y(tokens, rows);
          Matrix<int64_t> words(tokens, rows + kPartialExtraWords);
          const LinearTask task[] = {{weight.get(), bias.values.data(), y.view()}};
          const F32View part = x.view().Rows(0, tokens);
          if (granule == 0) backend->Linear(part, task);
          if (granule != 0) backend->LinearPartial(part, *weight, 0, words.view());
          int64_t wrong = 0;
          for (int64_t t = 0; t < tokens; ++t) {
            for (int64_t n = 0; n < rows; ++n) {
              wrong += granule == 0 ? y.at(t, n) != expected.at(t, n)
                                    : words.at(t, n) != expected_words.at(t, n);
            }
          }
          EXPECT_EQ(wrong, 0) << Info(type).name << " " << unit << ", " << tokens
                              << " tokens, granule " << granule;
        }
      }
    }
  }
}

// A partial's words against the same sums in double: each granule adds half a unit of 2^-28 and the
// bound of its f32 sum.
TEST(LinearPartial, Words_AreSumsOfGranules) {
  const int64_t cols = 160, granule = 32;
  auto backend = MakeBackend("generic");
  const Stored stored(DType::kF32, 5, cols, 6);
  Matrix<float> w = stored.Decoded(*backend), x = RandomMatrix(1, cols, 7);
  Matrix<int64_t> words(1, 5 + kPartialExtraWords);
  backend->LinearPartial(x.view(), *stored.Load(*backend, granule), 0, words.view());
  int64_t total = 0;
  for (const int64_t word : words.values) total += word;
  EXPECT_EQ(total, 0);
  EXPECT_EQ(words.at(0, 5), 0);
  for (int64_t n = 0; n < 5; ++n) {
    double sum = 0, size = 0;
    for (int64_t k = 0; k < cols; ++k) {
      sum += static_cast<double>(w.at(n, k)) * x.at(0, k);
      size += std::fabs(static_cast<double>(w.at(n, k)) * x.at(0, k));
    }
    EXPECT_NEAR(static_cast<double>(words.at(0, n)) / kPartialScale, sum,
                static_cast<double>(granule) * 0x1p-23 * size + 5 * 0.5 / kPartialScale);
  }
}

// Cut the columns anywhere between granules, in any type, also through a quant block: the integer
// sums are those of the whole.
TEST(LinearPartial, AnyCutBetweenGranules_SameSums) {
  const int64_t rows = 19, cols = 768;
  auto backend = MakeBackend("avx2") ? MakeBackend("avx2") : MakeBackend("generic");
  for (const DType type : kAllTypes) {
    for (const int64_t granule : {16, 48, 64, 256}) {
      const Stored stored(type, rows, cols, 8);
      Matrix<float> x = RandomMatrix(3, cols, 9, 30);
      Matrix<int64_t> whole(3, rows + kPartialExtraWords);
      backend->LinearPartial(x.view(), *stored.Load(*backend, granule), 0, whole.view());
      for (const int64_t cut : {granule, 2 * granule, cols / granule * granule - granule}) {
        Matrix<int64_t> left(3, whole.cols), right(3, whole.cols);
        backend->LinearPartial({x.values.data(), 3, cut, cols},
                               *stored.Load(*backend, granule, 0, cut), 0, left.view());
        backend->LinearPartial({x.values.data() + cut, 3, cols - cut, cols},
                               *stored.Load(*backend, granule, cut, cols), 0, right.view());
        for (size_t i = 0; i < left.values.size(); ++i) left.values[i] += right.values[i];
        EXPECT_TRUE(SameBits(left.values, whole.values))
            << Info(type).name << " granule " << granule << " cut at " << cut;
      }
    }
  }
}

// What the integers are for: f32 sums of the same granules differ with the order of the ranks, and
// a rank that holds a neighbour's granule is seen.
TEST(LinearPartial, OrderOfF32SumsAndWrongGranule_AreSeenToMatter) {
  const int64_t rows = 64, cols = 768, granule = 64;
  auto backend = MakeBackend("generic");
  const Stored stored(DType::kQ8_0, rows, cols, 10);
  Matrix<float> x = RandomMatrix(1, cols, 11);
  Matrix<int64_t> whole(1, rows + kPartialExtraWords), left = whole, right = whole, wrong = whole;
  backend->LinearPartial(x.view(), *stored.Load(*backend, granule), 0, whole.view());
  const int64_t cut = 384;
  F32View x_left{x.values.data(), 1, cut, cols}, x_right{x.values.data() + cut, 1, cut, cols};
  backend->LinearPartial(x_left, *stored.Load(*backend, granule, 0, cut), 0, left.view());
  backend->LinearPartial(x_right, *stored.Load(*backend, granule, cut, cols), 0, right.view());
  backend->LinearPartial(x_right, *stored.Load(*backend, granule, cut - granule, cols - granule), 0,
                         wrong.view());
  int differ_f32 = 0, differ_wrong = 0;
  std::vector<Matrix<int64_t>> granules;
  for (int64_t k = 0; k < cols; k += granule) {
    granules.emplace_back(1, rows + kPartialExtraWords);
    backend->LinearPartial({x.values.data() + k, 1, granule, cols},
                           *stored.Load(*backend, granule, k, k + granule), 0,
                           granules.back().view());
  }
  for (int64_t n = 0; n < rows; ++n) {
    EXPECT_EQ(left.at(0, n) + right.at(0, n), whole.at(0, n));
    differ_wrong += left.at(0, n) + wrong.at(0, n) != whole.at(0, n) ? 1 : 0;
    float forward = 0, first_half = 0, second_half = 0;
    for (size_t g = 0; g < granules.size(); ++g) {
      const auto part =
          static_cast<float>(static_cast<double>(granules[g].at(0, n)) / kPartialScale);
      forward += part;
      (g < granules.size() / 2 ? first_half : second_half) += part;
    }
    differ_f32 += forward != first_half + second_half ? 1 : 0;
  }
  EXPECT_GT(differ_f32, 0);
  EXPECT_GT(differ_wrong, rows / 2);
}

TEST(LinearPartial, OutOfRangeValues_RaiseTheRowsFlagOnly) {
  for (const char* unit : Units()) {
    auto backend = MakeBackend(unit);
    for (const DType type : {DType::kF32, DType::kQ8_0}) {
      const Stored stored(type, 4, 64, 12);
      const auto weight = stored.Load(*backend, 32);
      Matrix<float> x = RandomMatrix(3, 64, 13), residual(3, 4), out(3, 4);
      x.at(1, 5) = std::nanf("");
      x.at(2, 40) = 1e30f;
      Matrix<int64_t> words(3, 4 + kPartialExtraWords);
      backend->LinearPartial(x.view(), *weight, 0, words.view());
      EXPECT_EQ(words.at(0, 4), 0);
      EXPECT_GT(words.at(1, 4), 0);
      EXPECT_GT(words.at(2, 4), 0);
      std::vector<int32_t> faults(3, 0);
      const Matrix<float> norm = RandomMatrix(1, 4, 14);
      backend->AddPartialNorm(residual.view(), words.view(), 0, nullptr, norm.values.data(), 1e-6f,
                              out.view(), faults);
      EXPECT_EQ(faults, (std::vector<int32_t>{0, 1, 1}));
      EXPECT_FALSE(backend->breach().seen);
    }
  }
}

TEST(AddPartialNorm, AnyFlippedBit_IsSeen) {
  const Stored stored(DType::kF32, 4, 64, 15);
  Matrix<float> x = RandomMatrix(1, 64, 16);
  for (int64_t word = 0; word < 4 + kPartialExtraWords; ++word) {
    for (const int bit : {0, 17, 40, 63}) {
      auto backend = MakeBackend("generic");
      Matrix<float> residual(1, 4), out(1, 4);
      Matrix<int64_t> words(1, 4 + kPartialExtraWords);
      backend->LinearPartial(x.view(), *stored.Load(*backend, 32), 0, words.view());
      words.at(0, word) ^= static_cast<int64_t>(uint64_t{1} << bit);
      std::vector<int32_t> faults(1, 0);
      backend->AddPartialNorm(residual.view(), words.view(), 0, nullptr, x.values.data(), 1e-6f,
                              out.view(), faults);
      EXPECT_TRUE(backend->breach().seen);
    }
  }
}

TEST(LoadWeight, NotFiniteValue_IsRefused) {
  auto backend = MakeBackend("generic");
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_1}) {
    Stored stored(type, 16, 64, 17);
    const size_t at = type == DType::kF32 ? 2 : 0;  // the upper half of a value, or a scale
    stored.bytes[at] = std::byte{0x80};
    stored.bytes[at + 1] = std::byte{0x7F};
    const WeightDesc desc{type, 16, {{0, 64}}, 0};
    EXPECT_FALSE(backend->LoadWeight(desc, stored.Reader(desc, 0)).finite) << Info(type).name;
  }
}

// ---- the rest

// Relative error of a sum of n products in f32 lanes: at most (n / 16 + 6) eps, then a root, a
// division and two products.
TEST(RmsNorm, EveryUnit_WithinBoundAndSameBits) {
  std::vector<float> reference;
  for (const char* unit : Units()) {
    for (const int64_t n : {1, 15, 16, 72, 577}) {
      auto backend = MakeBackend(unit);
      Matrix<float> x = RandomMatrix(3, n, 20), w = RandomMatrix(1, n, 21), out(3, n);
      backend->RmsNorm(x.view(), w.values.data(), 1e-6f, out.view());
      for (int64_t t = 0; t < 3; ++t) {
        double squares = 0;
        for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(x.at(t, i)) * x.at(t, i);
        const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-6);
        for (int64_t i = 0; i < n; ++i) {
          const double expected = x.at(t, i) * scale * w.at(0, i);
          const double bound = (static_cast<double>(n) / 16 + 12) * 0x1p-24;
          ASSERT_NEAR(out.at(t, i), expected, std::fabs(expected) * bound);
        }
      }
      reference.insert(reference.end(), out.values.begin(), out.values.end());
    }
  }
  const auto size = std::ssize(reference) / std::ssize(Units());
  for (int64_t i = size; i < std::ssize(reference); ++i) {
    ASSERT_EQ(reference[static_cast<size_t>(i)], reference[static_cast<size_t>(i % size)]);
  }
}

TEST(SiluMul, WholeRange_FourUlpAndSameBits) {
  const int64_t n = 4001;
  Matrix<float> gate(1, n), up(1, n), first(1, n), out(1, n);
  for (int64_t i = 0; i < n; ++i) {
    gate.at(0, i) = static_cast<float>(i - 2000) * 0.05f;  // -100 .. 100
    up.at(0, i) = 1.5f;
  }
  for (const char* unit : Units()) {
    auto backend = MakeBackend(unit);
    backend->SiluMul(gate.view(), up.view(), out.view());
    for (int64_t i = 0; i < n; ++i) {
      const double x = gate.at(0, i), expected = 1.5 * x / (1 + std::exp(-std::max(x, -88.0)));
      // e^x is within 2 ulp, a sum, a quotient and a product add half an ulp each. Below -87 the
      // result is smaller than any activation that matters: 1e-36.
      ASSERT_NEAR(out.at(0, i), expected, std::fabs(expected) * 4 * 0x1p-23 + 1e-36) << x;
    }
    if (unit == Units()[0]) first = out;
    EXPECT_TRUE(SameBits(out.values, first.values)) << unit;
  }
}

TEST(Rope, BothPairings_MatchDouble) {
  auto backend = MakeBackend("generic");
  const std::vector<float> frequencies = {1.0f, 0.1f, 0.003f};
  const std::vector<int32_t> positions = {0, 7, 100000}, sequences = {0, 0, 0};
  const TokenPlaces places{positions, sequences, {}, {}, {}};
  for (const RopePairs pairs : {RopePairs::kHalves, RopePairs::kAdjacent}) {
    const RopeParams rope{pairs, 8, 6, frequencies.data(), 1.25f};
    Matrix<float> x = RandomMatrix(3, 16, 22), angles(3, 6);
    Matrix<float> before = x;
    backend->RopeAngles(places, rope, angles.view());
    backend->Rope(x.view(), angles.view(), rope);
    for (int64_t t = 0; t < 3; ++t) {
      for (int64_t head = 0; head < 16; head += 8) {
        for (int64_t i = 0; i < 3; ++i) {
          const double angle = static_cast<double>(frequencies[static_cast<size_t>(i)]) *
                               positions[static_cast<size_t>(t)];
          const int64_t a = head + (pairs == RopePairs::kHalves ? i : 2 * i);
          const int64_t b = head + (pairs == RopePairs::kHalves ? i + 3 : 2 * i + 1);
          const double c = 1.25 * std::cos(angle), s = 1.25 * std::sin(angle);
          EXPECT_NEAR(x.at(t, a), before.at(t, a) * c - before.at(t, b) * s, 1e-6);
          EXPECT_NEAR(x.at(t, b), before.at(t, b) * c + before.at(t, a) * s, 1e-6);
        }
        EXPECT_EQ(x.at(t, head + 6), before.at(t, head + 6));  // beyond the rotated dimensions
        EXPECT_EQ(x.at(t, head + 7), before.at(t, head + 7));
      }
    }
  }
}

// ---- candidates

TEST(TopCandidates, ChangesMaskAndOrder_AsDefined) {
  auto backend = MakeBackend("generic", 2);
  Matrix<float> logits(2, 6);
  logits.values = {1, 5, 3, 5, -2, 9, 1, 5, 3, 5, -2, 9};
  const std::vector<float> before = logits.values;
  const std::vector<uint8_t> allowed = {1, 1, 1, 1, 1, 0};  // id 105 is padding
  const std::vector<LogitChange> changes = {{7, 3, 0},      {101, 2, 0}, {102, 0, -INFINITY},
                                            {103, 0, -4.5}, {104, 1, 0}, {105, 1, 50}};
  CandidateSpec plain, changed;
  plain.count = 3;
  plain.target = 103;
  changed.row = 1;
  changed.count = 6;
  changed.target = 200;
  changed.changes = changes;
  changed.repeat_penalty = 2;
  changed.presence_penalty = 0.5;
  changed.frequency_penalty = 0.25;
  const CandidateSpec specs[] = {plain, changed};
  std::vector<Candidate> out(11);
  backend->TopCandidates(logits.view(), 100, allowed.data(), specs, out.data(), nullptr);
  std::vector<int32_t> ids;
  for (const Candidate& candidate : out) ids.push_back(candidate.id);
  // 101 and 103 tie at 5: the smaller id first. Changed: 101 has 5/2 - 0.5 - 2 * 0.25 = 1.5, 103
  // 0.5 and 104 -2 * 2 - 0.5 - 0.25 = -4.75; 102 is banned; five are allowed, the sixth place stays
  // empty. The targets: here, and elsewhere.
  EXPECT_EQ(ids, (std::vector<int32_t>{101, 103, 102, 103, 101, 100, 103, 104, 102, -1, -1}));
  EXPECT_EQ(out[3].logit, 5);
  EXPECT_EQ(out[4].key, 1.5);
  EXPECT_EQ(out[4].logit, 5);
  EXPECT_EQ(out[7].key, -4.75);
  EXPECT_EQ(out[8].key, -INFINITY);
  EXPECT_EQ(logits.values, before);
}

// A bias or a penalty that leaves the range of floats stops at its end: it bans nothing.
TEST(TopCandidates, HugeChanges_StayFinite) {
  auto backend = MakeBackend("generic");
  Matrix<float> logits(1, 4);
  logits.values = {3e38f, -3e38f, -1, 1};
  const std::vector<uint8_t> allowed(4, 1);
  const std::vector<LogitChange> changes = {{0, 0, 3e38}, {1, 0, -3e38}, {2, 1, 0}, {3, 1, 0}};
  CandidateSpec spec;
  spec.count = 4;
  spec.changes = changes;
  spec.repeat_penalty = 1e-38f;
  std::vector<Candidate> out(4);
  backend->TopCandidates(logits.view(), 0, allowed.data(), {&spec, 1}, out.data(), nullptr);
  EXPECT_EQ(out[0].id, 0);
  EXPECT_EQ(out[0].key, FLT_MAX);
  EXPECT_EQ(out[1].id, 3);
  EXPECT_EQ(out[3].id, 1);
  EXPECT_EQ(out[3].key, -FLT_MAX);
}

TEST(TopCandidates, ShardedDraw_IsTheWholeVocabularysDraw) {
  auto backend = MakeBackend("generic");
  Matrix<float> logits = RandomMatrix(1, 3000, 30);
  const std::vector<uint8_t> allowed(3000, 1);
  CandidateSpec spec;
  spec.temperature = 0.7f;
  spec.seed = 5;
  const F32View left_view{logits.values.data(), 1, 1024, 3000},
      right_view{logits.values.data() + 1024, 1, 1976, 3000};
  for (int32_t position = 0; position < 20; ++position) {
    spec.position = position;
    Candidate whole, left, right;
    const std::span<const CandidateSpec> specs(&spec, 1);
    backend->TopCandidates(logits.view(), 0, allowed.data(), specs, &whole, nullptr);
    backend->TopCandidates(left_view, 0, allowed.data(), specs, &left, nullptr);
    backend->TopCandidates(right_view, 1024, allowed.data(), specs, &right, nullptr);
    EXPECT_EQ(whole.id, (CandidateBefore(left, right) ? left : right).id);
  }
}

// The sums of three blocks against long double: 1024 terms, each with an error of exp and of the
// sum (at most 4 + 128 roundings of 1.1e-16 of what is added).
TEST(TopCandidates, LogSums_AreThoseOfTheBlocks) {
  auto backend = MakeBackend("generic");
  Matrix<float> logits = RandomMatrix(1, 2500, 31);
  std::vector<uint8_t> allowed(2500, 1);
  for (size_t i = 1024; i < 1030; ++i) allowed[i] = 0;
  logits.values[1027] = 1000;
  const LogitChange ban{3, 0, -INFINITY};
  CandidateSpec spec;
  spec.count = 0;
  spec.log_sums = true;
  spec.changes = {&ban, 1};
  LogSum sums[3];
  backend->TopCandidates(logits.view(), 0, allowed.data(), {&spec, 1}, nullptr, sums);
  for (size_t block = 0; block < 3; ++block) {
    const size_t end = std::min<size_t>(2500, (block + 1) * 1024);
    long double sum = 0;
    for (size_t i = block * 1024; i < end; ++i) {
      if (allowed[i] != 0 && i != 3) sum += std::exp(static_cast<long double>(logits.values[i]));
    }
    EXPECT_NEAR(LogOf(sums[block]), static_cast<double>(std::log(sum)), 1.5e-14) << block;
  }
}

// Argmax of logit + Gumbel noise draws with probability softmax(logit): three tokens, 40,000 draws,
// each frequency within 5 standard deviations (at most 5 * sqrt(0.25 / 40000) = 0.0125).
TEST(GumbelNoise, ArgmaxFrequencies_AreTheSoftmax) {
  const double logits[] = {0, 1, 2};
  int counts[3] = {};
  for (int32_t position = 0; position < 40000; ++position) {
    double keys[3];
    for (int32_t token = 0; token < 3; ++token) {
      keys[token] = logits[token] + GumbelNoise(42, 0, position, token);
    }
    ++counts[std::max_element(keys, keys + 3) - keys];
  }
  const double total = 1 + std::exp(1) + std::exp(2);
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(counts[i] / 40000.0, std::exp(logits[i]) / total, 0.0125);
}

TEST(ChooseKernels, UnknownUnit_IsRefusedByName) {
  setenv("TRINE_CPU", "sse9", 1);
  std::string error;
  EXPECT_EQ(MakeCpuBackend({}, &error), nullptr);
  EXPECT_EQ(error, "TRINE_CPU=sse9 is none of generic, avx2, avx512");
  unsetenv("TRINE_CPU");
}

}  // namespace
}  // namespace trine
