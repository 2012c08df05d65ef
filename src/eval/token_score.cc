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

// exp(x) for -700 <= x <= 1, without a branch, so that loops over it vectorise.
inline double Exp(double x) {
  constexpr double kLog2E = 1.4426950408889634, kLn2High = 0x1.62e42fefa0000p-1,
                   kLn2Low = 0x1.cf79abc9e3b3ap-40;
  constexpr double kRound = 0x1.8p52;  // adding it leaves an integer in the low bits
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

// Up to kBlock terms of a sum.
struct Terms {
  std::array<double, kBlock> values;
  size_t size = 0;

  // terms = exp(max(terms, -700)). In one loop the compiler would branch at the maximum.
  void Exponentiate() {
    for (size_t i = 0; i < size; ++i) values[i] = values[i] > -700.0 ? values[i] : -700.0;
    for (size_t i = 0; i < size; ++i) values[i] = Exp(values[i]);
  }

  // Term i goes to running sum i mod 8.
  double Sum() const {
    std::array<double, kLanes> lanes{};
    size_t i = 0;
    for (; i + kLanes <= size; i += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += values[i + lane];
    }
    for (size_t lane = 0; i < size; ++i, ++lane) lanes[lane] += values[i];
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
           ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
  }
};

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
    float largest;
    double sum;  // of exp(logit - largest)
  };
  if (!Finite(logits)) return {kNotANumber, 0};
  std::vector<Block> blocks;
  float largest = logits[0];
  size_t top_block = 0;
  Terms terms;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const auto block = logits.subspan(begin, std::min(kBlock, logits.size() - begin));
    const float top = Largest(block);
    if (top > largest) top_block = begin;
    largest = std::max(largest, top);
    terms.size = block.size();
    for (size_t i = 0; i < block.size(); ++i) terms.values[i] = double{block[i]} - double{top};
    terms.Exponentiate();
    blocks.push_back({top, terms.Sum()});
  }
  double sum = 0;
  for (const Block& block : blocks) {
    sum += block.sum * ExpBelowOne(double{block.largest} - double{largest});
  }
  const auto top =
      std::find(logits.begin() + static_cast<int64_t>(top_block), logits.end(), largest);
  return {double{largest} + std::log(sum), static_cast<size_t>(top - logits.begin())};
}

double Divergence(std::span<const float> reference, double reference_sum,
                  std::span<const float> logits, double sum) {
  double total = 0;
  Terms terms;
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

double ExpBelowOne(double x) {
  return Exp(std::max(x, -700.0));
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
