#include "src/eval/perplexity_stats.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace trine {
namespace {

// Mean of fn(score) and its standard error.
template <typename Fn>
Estimate Mean(std::span<const TokenScore> scores, const Fn& fn) {
  const auto n = static_cast<double>(scores.size());
  double sum = 0, squares = 0;
  for (const TokenScore& score : scores) sum += fn(score);
  const double mean = sum / n;
  for (const TokenScore& score : scores) squares += (fn(score) - mean) * (fn(score) - mean);
  return {mean, scores.size() < 2 ? 0 : std::sqrt(squares / n / (n - 1))};
}

Estimate Exp(const Estimate& log) {
  const double value = std::exp(log.value);
  return {value, value * log.error};
}

double DeltaP(const TokenScore& score) {
  return std::exp(-score.nll) - std::exp(-score.reference_nll);
}

// sorted, not empty; linear between neighbours.
double Percentile(const std::vector<double>& sorted, double percent) {
  const double place = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double share = place - static_cast<double>(below);
  return (1 - share) * sorted[below] + share * sorted[above];
}

}  // namespace

Estimate Perplexity(std::span<const TokenScore> scores) {
  return Exp(Mean(scores, [](const TokenScore& s) { return s.nll; }));
}

Comparison Compare(std::span<const TokenScore> scores) {
  Comparison result;
  result.reference = Exp(Mean(scores, [](const TokenScore& s) { return s.reference_nll; }));
  // The variance of a difference: both variances less twice the covariance.
  result.ratio = Exp(Mean(scores, [](const TokenScore& s) { return s.nll - s.reference_nll; }));
  result.kl = Mean(scores, [](const TokenScore& s) { return s.kl; });
  result.top1_agreement = Mean(scores, [](const TokenScore& s) { return s.same_top ? 1.0 : 0.0; });
  result.mean_delta_p = Mean(scores, DeltaP);
  const Estimate squared = Mean(scores, [](const TokenScore& s) { return DeltaP(s) * DeltaP(s); });
  const double rms = std::sqrt(squared.value);
  result.rms_delta_p = {rms, rms == 0 ? 0 : 0.5 / rms * squared.error};

  std::vector<double> sorted;
  for (const TokenScore& score : scores) sorted.push_back(score.kl);
  std::sort(sorted.begin(), sorted.end());
  result.max_kl = sorted.back();
  for (size_t i = 0; i < kPercents.size(); ++i) {
    result.kl_percentiles[i] = Percentile(sorted, kPercents[i]);
  }
  return result;
}

}  // namespace trine
