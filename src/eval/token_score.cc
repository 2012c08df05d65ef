#include "src/eval/token_score.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include "kernels/log_sum_exp.h"

namespace trine {
namespace {

constexpr size_t kBlock = kLogSumBlock;
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

struct Softmax {
  double log_sum = 0;  // log of the sum of exp(logit); not a number if a logit is not finite
  size_t top = 0;      // the first of the largest
};

bool Finite(std::span<const float> values) {
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t infinite = 0;
  for (const float value : values) {
    infinite |= (std::bit_cast<uint32_t>(value) & kExponent) == kExponent ? 1u : 0u;
  }
  return infinite == 0;
}

Softmax Normalise(std::span<const float> logits) {
  if (!Finite(logits)) return {kNotANumber, 0};
  std::vector<LogSum> blocks;
  float largest = logits[0];
  size_t top_block = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    blocks.push_back(SumBlock(logits.subspan(begin, std::min(kBlock, logits.size() - begin))));
    if (blocks.back().largest > largest) top_block = begin;
    largest = std::max(largest, blocks.back().largest);
  }
  const auto top =
      std::find(logits.begin() + static_cast<int64_t>(top_block), logits.end(), largest);
  return {LogOf(SumBlocks(blocks)), static_cast<size_t>(top - logits.begin())};
}

double Divergence(std::span<const float> reference, double reference_sum,
                  std::span<const float> logits, double sum) {
  double total = 0;
  ExpTerms terms;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const float* p = reference.data() + begin;
    const float* q = logits.data() + begin;
    terms.size = std::min(kBlock, logits.size() - begin);
    for (size_t i = 0; i < terms.size; ++i) terms.values[i] = double{p[i]} - reference_sum;
    terms.Exponentiate();
    for (size_t i = 0; i < terms.size; ++i) {
      terms.values[i] *= (double{p[i]} - reference_sum) - (double{q[i]} - sum);
    }
    total += terms.Sum();
  }
  return total;
}

}  // namespace

TokenScore ScoreToken(std::span<const float> logits, int32_t token) {
  TokenScore score;
  score.nll = Normalise(logits).log_sum - double{logits[static_cast<size_t>(token)]};
  return score;
}

TokenScore ScoreToken(std::span<const float> logits, std::span<const float> reference,
                      int32_t token) {
  const Softmax mine = Normalise(logits), theirs = Normalise(reference);
  const auto id = static_cast<size_t>(token);
  TokenScore score;
  score.nll = mine.log_sum - double{logits[id]};
  score.reference_nll = theirs.log_sum - double{reference[id]};
  score.kl = Divergence(reference, theirs.log_sum, logits, mine.log_sum);
  score.same_top = mine.top == theirs.top;
  return score;
}

}  // namespace trine
