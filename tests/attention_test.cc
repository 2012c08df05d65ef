// Attention over paged keys and values: against a plain loop in double, cache types against each
// other, and every instruction-set unit against the others, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/backend.h"
#include "kernels/half.h"
#include "tests/kernels.h"

namespace trine {
namespace {

// Keys and values of one sequence, written to scattered pages, and all queries.
std::vector<float> AttentionOf(Backend& backend, KvType type, int64_t head_dim, int32_t tokens,
                               Matrix<float>& q, Matrix<float>& k, Matrix<float>& v) {
  const KvLayout layout{2, head_dim, type};
  const std::vector<int32_t> pages = {3, 0, 2}, indptr = {0, 3}, kv_heads = {0, 0, 1};
  Buffer memory = backend.Allocate(4 * backend.KvPageBytes(layout));
  std::vector<int32_t> positions, sequences(static_cast<size_t>(tokens), 0);
  for (int32_t t = 0; t < tokens; ++t) positions.push_back(t);
  const TokenPlaces places{positions, sequences, indptr, pages, {}};
  const KvPages kv{memory.as(), layout};
  backend.WriteKv(k.view(), v.view(), places, kv);
  Matrix<float> out(tokens, q.cols);
  backend.PagedAttention(q.view(), kv_heads, 0.3f, places, kv, out.view());
  return out.values;
}

// Attention in double, within what f32 sums may be off: scores of size up to 0.3 * 64 * 4 carry 64
// eps of it into the exponent.
void ExpectNearDouble(const std::vector<float>& out, Matrix<float>& q, Matrix<float>& k,
                      Matrix<float>& v, int64_t head_dim) {
  for (int64_t t = 0; t < q.rows; ++t) {
    for (int64_t h = 0; h < 3; ++h) {
      const int64_t kv = h == 2 ? 1 : 0;
      std::vector<double> odds;
      double total = 0;
      for (int64_t key = 0; key <= t; ++key) {
        double score = 0;
        for (int64_t d = 0; d < head_dim; ++d) {
          score += static_cast<double>(q.at(t, h * head_dim + d)) * k.at(key, kv * head_dim + d);
        }
        odds.push_back(std::exp(0.3 * score));
        total += odds.back();
      }
      for (int64_t d = 0; d < head_dim; ++d) {
        double expected = 0;
        for (int64_t key = 0; key <= t; ++key) {
          expected += odds[static_cast<size_t>(key)] / total * v.at(key, kv * head_dim + d);
        }
        ASSERT_NEAR(out[static_cast<size_t>(t * 3 * head_dim + h * head_dim + d)], expected,
                    64 * 0x1p-23 * 0.3 * 64 * 4);
      }
    }
  }
}

TEST(PagedAttention, EveryUnit_MatchesDoubleAndSameBits) {
  const int32_t tokens = 75;  // two pages and a part
  for (const int64_t head_dim : {16, 24, 64}) {
    Matrix<float> q = RandomMatrix(tokens, 3 * head_dim, 23),
                  k = RandomMatrix(tokens, 2 * head_dim, 24),
                  v = RandomMatrix(tokens, 2 * head_dim, 25);
    std::vector<float> first;
    for (const char* unit : Units()) {
      auto backend = MakeBackend(unit, 2);
      const auto out = AttentionOf(*backend, KvType::kF32, head_dim, tokens, q, k, v);
      if (first.empty()) first = out;
      EXPECT_TRUE(SameBits(out, first)) << unit;
      EXPECT_NE(AttentionOf(*backend, KvType::kF16, head_dim, tokens, q, k, v), out);
    }
    ExpectNearDouble(first, q, k, v, head_dim);
  }
}

// What a cache of Q8_0 makes of x [T, 2 * D]: groups of 32 within a head, scale max|x| / 127.
Matrix<float> RoundedToQ8(Matrix<float> x, int64_t head_dim) {
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t begin = 0; begin < x.cols;) {
      const int64_t left = head_dim - begin % head_dim, end = begin + std::min<int64_t>(32, left);
      float largest = 0;
      for (int64_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(x.at(t, i)));
      const float scale = largest / 127, kept = F16ToFloat(FloatToF16(scale));
      for (; begin < end; ++begin) {
        const float before = x.at(t, begin);
        x.at(t, begin) = kept == 0 ? 0 : std::round(before * (1 / scale)) * kept;
        // Half a step, and the largest code times the scale's rounding: to 11 bits, or at 2^-24.
        const float bound = scale / 2 + 127 * std::max(scale * 0x1p-11f, 0x1p-25f);
        EXPECT_LE(std::fabs(x.at(t, begin) - before), bound * 1.001f);
      }
    }
  }
  return x;
}

// The same bits as an f32 cache of the rounded values: the kernels add no error of their own.
TEST(PagedAttention, Q8_0_IsAttentionOverRoundedValues) {
  const int32_t tokens = 75;
  for (const int64_t head_dim : {16, 24, 40, 64}) {  // groups of 16, 24, 8 as the last
    Matrix<float> q = RandomMatrix(tokens, 3 * head_dim, 23),
                  k = RandomMatrix(tokens, 2 * head_dim, 24, /*outlier=*/20),
                  v = RandomMatrix(tokens, 2 * head_dim, 25);
    for (int64_t i = 0; i < head_dim; ++i) {
      k.at(5, i) = 0;
      v.at(6, i) *= 1e-40f;  // no f16 is as small as their scale
    }
    Matrix<float> k_rounded = RoundedToQ8(k, head_dim), v_rounded = RoundedToQ8(v, head_dim);
    EXPECT_NE(k_rounded.values, k.values);
    for (const char* unit : Units()) {
      auto backend = MakeBackend(unit, 2);
      const auto out = AttentionOf(*backend, KvType::kQ8_0, head_dim, tokens, q, k, v);
      EXPECT_TRUE(SameBits(
          out, AttentionOf(*backend, KvType::kF32, head_dim, tokens, q, k_rounded, v_rounded)))
          << unit << " " << head_dim;
      ExpectNearDouble(out, q, k_rounded, v_rounded, head_dim);
    }
  }
}

// One value of KV head 0 at token 40: those that see it are told, no other.
TEST(PagedAttention, Q8_0ValueNotFinite_IsNotHidden) {
  const int32_t tokens = 75, bad = 40;
  const int64_t head_dim = 40;
  for (const float value : {NAN, INFINITY, -INFINITY, 3e38f}) {  // the last: beyond an f16 scale
    for (const bool in_keys : {true, false}) {
      Matrix<float> q = RandomMatrix(tokens, 3 * head_dim, 23),
                    k = RandomMatrix(tokens, 2 * head_dim, 24),
                    v = RandomMatrix(tokens, 2 * head_dim, 25);
      (in_keys ? k : v).at(bad, 3) = value;
      for (const char* unit : Units()) {
        auto backend = MakeBackend(unit, 2);
        const auto out = AttentionOf(*backend, KvType::kQ8_0, head_dim, tokens, q, k, v);
        for (int64_t i = 0; i < std::ssize(out); ++i) {
          const int64_t t = i / q.cols, head = i % q.cols / head_dim, d = i % head_dim;
          const bool sees = t >= bad && head < 2 && (in_keys || d < 32);
          ASSERT_EQ(std::isfinite(out[static_cast<size_t>(i)]), !sees) << unit << " " << value;
        }
      }
    }
  }
}

// Two heads of 32 tokens. Q8_0: a byte each and two for a scale of 32; D = 40 has two groups, and
// rows of values of 48.
TEST(KvPageBytes, EveryType_Exact) {
  auto backend = MakeBackend("generic");
  EXPECT_EQ(backend->KvPageBytes({2, 64, KvType::kF32}), 2 * 32 * 2 * 64 * 4);
  EXPECT_EQ(backend->KvPageBytes({2, 64, KvType::kF16}), 2 * 32 * 2 * 64 * 2);
  EXPECT_EQ(backend->KvPageBytes({2, 64, KvType::kQ8_0}), 2 * 32 * 2 * (64 + 2 * 2));
  EXPECT_EQ(backend->KvPageBytes({2, 40, KvType::kQ8_0}), 2 * 32 * (40 + 48 + 2 * 2 * 2));
}

std::vector<std::pair<const char*, KvType>> UnitsAndTypes() {
  std::vector<std::pair<const char*, KvType>> all;
  for (const char* unit : Units()) {
    all.insert(all.end(), {{unit, KvType::kF16}, {unit, KvType::kQ8_0}, {unit, KvType::kF32}});
  }
  return all;
}

// All tokens at once, and one by one: queries walk the tiles together as their heads and tokens
// allow. What lies in the pages beyond a query's keys is never read.
TEST(PagedAttention, TogetherAndAlone_SameBits) {
  const int32_t tokens = 75;
  const int64_t head_dim = 40;
  const std::vector<int32_t> pages = {3, 0, 2}, indptr = {0, 3};
  for (const std::vector<int32_t>& kv_heads :
       {std::vector<int32_t>{0, 1}, {0, 0, 1}, {0, 0, 0, 0, 0, 0, 0, 1}}) {
    Matrix<float> q = RandomMatrix(tokens, std::ssize(kv_heads) * head_dim, 23),
                  k = RandomMatrix(tokens, 2 * head_dim, 24),
                  v = RandomMatrix(tokens, 2 * head_dim, 25);
    for (const auto& [unit, type] : UnitsAndTypes()) {
      auto backend = MakeBackend(unit, 2);
      const KvLayout layout{2, head_dim, type};
      Buffer memory = backend->Allocate(4 * backend->KvPageBytes(layout));
      std::memset(memory.as(), 0xFF, static_cast<size_t>(memory.bytes()));  // NaN in f16 and f32
      const KvPages kv{memory.as(), layout};
      std::vector<int32_t> positions, sequences(static_cast<size_t>(tokens), 0);
      for (int32_t t = 0; t < tokens; ++t) positions.push_back(t);
      const TokenPlaces places{positions, sequences, indptr, pages, {}};
      Matrix<float> together(tokens, q.cols), alone(tokens, q.cols);
      for (int32_t t = 0; t < tokens; ++t) {
        const TokenPlaces place{std::span(positions).subspan(static_cast<size_t>(t), 1),
                                std::span(sequences).first(1),
                                indptr,
                                pages,
                                {}};
        backend->WriteKv(k.view().Rows(t, 1), v.view().Rows(t, 1), place, kv);
        backend->PagedAttention(q.view().Rows(t, 1), kv_heads, 0.3f, place, kv,
                                alone.view().Rows(t, 1));
      }
      backend->PagedAttention(q.view(), kv_heads, 0.3f, places, kv, together.view());
      EXPECT_TRUE(SameBits(together.values, alone.values)) << unit << " " << kv_heads.size();
      EXPECT_FALSE(std::isnan(together.values[0]));
    }
  }
}

}  // namespace
}  // namespace trine
