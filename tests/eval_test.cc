#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/log_sum_exp.h"
#include "src/eval/perplexity_stats.h"
#include "src/eval/token_score.h"

namespace trine {
namespace {

using Row = std::vector<float>;

Row RandomRow(size_t size, unsigned seed, float scale) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  Row row(size);
  for (float& logit : row) logit = normal(random);
  return row;
}

// ---- one token

TEST(ExpBelowOne, AsTheLibrary) {
  for (double x = -699; x <= 1; x += 0.0137) {
    EXPECT_NEAR(ExpBelowOne(x) / std::exp(x), 1, 5e-16) << x;
  }
  EXPECT_EQ(ExpBelowOne(0), 1);
  for (const double x : {-700.001, -1e4, -1e30, -std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(ExpBelowOne(x), ExpBelowOne(-700)) << x;
  }
}

TEST(Log, AsTheLibrary) {
  EXPECT_EQ(Log(1), 0);
  for (double x = 1e-300; x < 1e300; x *= 1.0137) {
    EXPECT_NEAR(Log(x) / std::log(x), 1, 1e-15) << x;
  }
  for (double x = 0.30005; x < 3; x += 0.0001) {
    EXPECT_NEAR(Log(x) / std::log(x), 1, 1e-15) << x;
  }
}

long double LogSum(const Row& row) {
  long double largest = -std::numeric_limits<long double>::infinity(), sum = 0;
  for (const float logit : row) largest = std::max(largest, static_cast<long double>(logit));
  for (const float logit : row) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

// Sums of up to 5000 doubles: within 5000 * 1.1e-16 of their size, a few nats.
TEST(ScoreToken, AsInLongDouble) {
  for (const size_t vocab : {1, 7, 8, 1023, 1024, 1025, 5000}) {
    for (const float scale : {0.0f, 1.0f, 30.0f}) {
      const Row logits = RandomRow(vocab, 1, scale), reference = RandomRow(vocab, 2, scale);
      const auto token = static_cast<int32_t>(vocab / 2);
      const TokenScore score = ScoreToken(logits, reference, token);
      const long double mine = LogSum(logits), theirs = LogSum(reference);
      long double kl = 0;
      for (size_t i = 0; i < vocab; ++i) {
        kl += std::exp(reference[i] - theirs) * ((reference[i] - theirs) - (logits[i] - mine));
      }
      const auto id = static_cast<size_t>(token);
      EXPECT_NEAR(score.nll, static_cast<double>(mine - logits[id]), 1e-12) << vocab;
      EXPECT_NEAR(score.reference_nll, static_cast<double>(theirs - reference[id]), 1e-12);
      EXPECT_NEAR(score.kl, static_cast<double>(kl), 1e-11);
      EXPECT_EQ(score.nll, ScoreToken(logits, token).nll);
    }
  }
}

TEST(ScoreToken, AgainstItself_IsExactlyZero) {
  const Row logits = RandomRow(3000, 3, 10);
  const TokenScore score = ScoreToken(logits, logits, 17);
  EXPECT_EQ(score.kl, 0);
  EXPECT_EQ(score.nll, score.reference_nll);
  EXPECT_TRUE(score.same_top);
}

TEST(ScoreToken, SameTop_IsTheFirstOfTheLargest) {
  Row logits(3000, 0.0f), reference(3000, 0.0f);
  logits[2000] = logits[2500] = 5;
  reference[2500] = 5;
  EXPECT_FALSE(ScoreToken(logits, reference, 0).same_top);
  reference[2000] = 5;
  EXPECT_TRUE(ScoreToken(logits, reference, 0).same_top);
  reference[1023] = 5;
  EXPECT_FALSE(ScoreToken(logits, reference, 0).same_top);
}

TEST(ScoreToken, NotFinite_IsSeenInEitherRow) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const size_t place : {0, 1500, 2999}) {
      const Row good = RandomRow(3000, 4, 1);
      Row logits = good;
      logits[place] = bad;
      EXPECT_TRUE(std::isnan(ScoreToken(logits, 5).nll));
      EXPECT_TRUE(std::isnan(ScoreToken(logits, good, 5).nll));
      EXPECT_TRUE(std::isnan(ScoreToken(good, logits, 5).reference_nll));
      EXPECT_FALSE(std::isnan(ScoreToken(good, logits, 5).nll));
    }
  }
}

// ---- many tokens

std::vector<TokenScore> Scores(std::initializer_list<std::array<double, 3>> values) {
  std::vector<TokenScore> scores;
  for (const auto& [nll, reference, kl] : values) {
    scores.push_back({nll, reference, kl, kl < 0.3});
  }
  return scores;
}

// Worked by hand: nll 1, 2, 3 has mean 2 and variance 2/3, over n - 1 = 2: error sqrt(1/3).
TEST(Perplexity, MeanAndError) {
  const Estimate ppl = Perplexity(Scores({{1, 0, 0}, {2, 0, 0}, {3, 0, 0}}));
  EXPECT_DOUBLE_EQ(ppl.value, std::exp(2.0));
  EXPECT_DOUBLE_EQ(ppl.error, std::exp(2.0) * std::sqrt(1.0 / 3));
  EXPECT_EQ(Perplexity(Scores({{1, 0, 0}})).error, 0);
}

// The ratio's error as llama.cpp writes it: from both variances and the covariance.
TEST(Compare, RatioKnowsTheCovariance) {
  const auto scores = Scores({{1, 1.5, 0.1}, {2, 2.25, 0.2}, {4, 3.75, 0.4}, {3, 3, 0.3}});
  double x = 0, y = 0, xx = 0, yy = 0, xy = 0;
  const double n = 4;
  for (const TokenScore& s : scores) {
    x += s.nll / n, xx += s.nll * s.nll / n;
    y += s.reference_nll / n, yy += s.reference_nll * s.reference_nll / n;
    xy += s.nll * s.reference_nll / n;
  }
  const double variance = ((xx - x * x) + (yy - y * y) - 2 * (xy - x * y)) / (n - 1);
  const Comparison found = Compare(scores);
  EXPECT_NEAR(found.ratio.value, std::exp(x - y), 1e-14);
  EXPECT_NEAR(found.ratio.error, std::exp(x - y) * std::sqrt(variance), 1e-14);
  EXPECT_NEAR(found.reference.value, std::exp(y), 1e-13);
  EXPECT_DOUBLE_EQ(found.max_kl, 0.4);
  EXPECT_DOUBLE_EQ(found.kl.value, 0.25);
  EXPECT_DOUBLE_EQ(found.kl_percentiles[4], 0.25);  // the median, between 0.2 and 0.3
  EXPECT_DOUBLE_EQ(found.kl_percentiles[3], 0.13);  // 10 %: place 0.3
  EXPECT_DOUBLE_EQ(found.top1_agreement.value, 0.5);
  EXPECT_DOUBLE_EQ(found.top1_agreement.error, std::sqrt(0.25 / 3));
  double mean = 0, square = 0;
  for (const TokenScore& s : scores) {
    const double delta = std::exp(-s.nll) - std::exp(-s.reference_nll);
    mean += delta / n, square += delta * delta / n;
  }
  EXPECT_NEAR(found.mean_delta_p.value, mean, 1e-15);
  EXPECT_NEAR(found.rms_delta_p.value, std::sqrt(square), 1e-15);
}

TEST(Compare, EqualModels_HaveNoDistance) {
  const Comparison found = Compare(Scores({{1, 1, 0}, {2, 2, 0}}));
  EXPECT_EQ(found.ratio.value, 1);
  EXPECT_EQ(found.ratio.error, 0);
  EXPECT_EQ(found.top1_agreement.value, 1);
  EXPECT_EQ(found.rms_delta_p.value, 0);
  EXPECT_EQ(found.rms_delta_p.error, 0);
}

}  // namespace
}  // namespace trine
