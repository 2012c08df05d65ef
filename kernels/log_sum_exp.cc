#include "kernels/log_sum_exp.h"

#include <algorithm>
#include <bit>

namespace trine {
namespace {

constexpr size_t kLanes = 8;

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

}  // namespace

double ExpBelowOne(double x) {
  return Exp(std::max(x, -700.0));
}

double Log(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFu) | 0x3FF0000000000000u);
  if (m > 1.4142135623730951) {  // m in [sqrt(1/2), sqrt(2))
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1) / (m + 1), square = s * s;
  double sum = 0;
  for (int k = 19; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return 2 * s * sum + exponent * 0.6931471805599453;
}

// In one loop the compiler would branch at the maximum.
void ExpTerms::Exponentiate() {
  for (size_t i = 0; i < size; ++i) values[i] = values[i] > -700.0 ? values[i] : -700.0;
  for (size_t i = 0; i < size; ++i) values[i] = Exp(values[i]);
}

double ExpTerms::Sum() const {
  std::array<double, kLanes> lanes{};
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += values[i + lane];
  }
  for (size_t lane = 0; i < size; ++i, ++lane) lanes[lane] += values[i];
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// -infinity becomes exp(-700), which is lost beside the 1 of the largest value.
LogSum SumBlock(std::span<const float> values) {
  const float largest = Largest(values);
  if (largest == -INFINITY) return {};
  ExpTerms terms;
  terms.size = values.size();
  for (size_t i = 0; i < terms.size; ++i) terms.values[i] = double{values[i]} - double{largest};
  terms.Exponentiate();
  return {largest, terms.Sum()};
}

LogSum SumBlocks(std::span<const LogSum> blocks) {
  LogSum all;
  for (const LogSum& block : blocks) all.largest = std::max(all.largest, block.largest);
  if (all.largest == -INFINITY) return {};
  for (const LogSum& block : blocks) {
    all.sum += block.sum * ExpBelowOne(double{block.largest} - double{all.largest});
  }
  return all;
}

}  // namespace trine
