#include "src/eval/token_score.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace trine {
namespace {

constexpr size_t kBlock = 1024, kLanes = 8;
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

using Lanes = std::array<double, kLanes>;

double Sum(const Lanes& lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// The sum of fn(i) for i in [0, n): i goes to lane i mod 8. Whole groups vectorise.
template <typename Fn>
double SumInLanes(size_t n, const Fn& fn) {
  Lanes lanes{};
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += fn(i + lane);
  }
  for (size_t lane = 0; i < n; ++i, ++lane) lanes[lane] += fn(i);
  return Sum(lanes);
}

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

float Largest(std::span<const float> values) {
  std::array<float, kLanes> lanes;
  lanes.fill(values[0]);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
    }
  }
  for (; i < values.size(); ++i) lanes[0] = std::max(lanes[0], values[i]);
  return *std::max_element(lanes.begin(), lanes.end());
}

Softmax Normalise(std::span<const float> logits) {
  struct Block {
    double largest, sum;  // of exp(logit - largest)
  };
  if (!Finite(logits)) return {kNotANumber, 0};
  std::vector<Block> blocks;
  float largest = logits[0];
  size_t top_block = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const auto block = logits.subspan(begin, std::min(kBlock, logits.size() - begin));
    const float top = Largest(block);
    if (top > largest) top_block = begin;
    largest = std::max(largest, top);
    const double sum = SumInLanes(
        block.size(), [&](size_t i) { return ExpBelowOne(double{block[i]} - double{top}); });
    blocks.push_back({top, sum});
  }
  double sum = 0;
  for (const Block& block : blocks) sum += block.sum * ExpBelowOne(block.largest - double{largest});
  const auto top =
      std::find(logits.begin() + static_cast<int64_t>(top_block), logits.end(), largest);
  return {double{largest} + std::log(sum), static_cast<size_t>(top - logits.begin())};
}

double Divergence(std::span<const float> reference, double reference_sum,
                  std::span<const float> logits, double sum) {
  double total = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const size_t n = std::min(kBlock, logits.size() - begin);
    const float* p = reference.data() + begin;
    const float* q = logits.data() + begin;
    total += SumInLanes(n, [&](size_t i) {
      const double log_p = double{p[i]} - reference_sum;
      return ExpBelowOne(log_p) * (log_p - (double{q[i]} - sum));
    });
  }
  return total;
}

}  // namespace

double ExpBelowOne(double x) {
  constexpr double kLog2E = 1.4426950408889634, kLn2High = 0x1.62e42fefa0000p-1,
                   kLn2Low = 0x1.cf79abc9e3b3ap-40;
  constexpr double kRound = 0x1.8p52;  // adding it leaves an integer in the low bits
  x = x > -700.0 ? x : -700.0;
  const double shifted = x * kLog2E + kRound;
  const double k = shifted - kRound;
  const double r = (x - k * kLn2High) - k * kLn2Low;  // |r| <= 0.35
  double p = 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  // times 2^k, by the exponent's bits
  return std::bit_cast<double>(std::bit_cast<uint64_t>(p) +
                               (std::bit_cast<uint64_t>(shifted) << 52));
}

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
