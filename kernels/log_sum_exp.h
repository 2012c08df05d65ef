// Sums of exponentials in double and in a fixed order, the same bits on every machine: own exp and
// logarithm, nothing fused, blocks of 1024 values one after another, a block in eight running sums.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace trine {

inline constexpr int64_t kLogSumBlock = 1024;
constexpr int64_t LogSumBlocks(int64_t values) {
  return (values + kLogSumBlock - 1) / kLogSumBlock;
}

// exp(x) for x <= 1, within 4e-16 (Taylor of degree 12 after reduction by ln 2); below -700 it is
// exp(-700).
double ExpBelowOne(double x);

// ln x for normal x > 0, within 1e-15: 2 atanh((m - 1) / (m + 1)) + e ln 2 for x = m 2^e.
double Log(double x);

// Up to a block of terms of a sum.
struct ExpTerms {
  std::array<double, kLogSumBlock> values;
  size_t size = 0;

  void Exponentiate();  // values = ExpBelowOne(values)
  double Sum() const;   // value i goes to running sum i mod 8
};

// What the exponentials of some values add up to: e^largest * sum.
struct LogSum {
  float largest = -INFINITY;
  double sum = 0;  // of exp(value - largest); 0 if every value is -infinity
};

// Values are finite or -infinity, which adds nothing; at most a block of them, at least one.
LogSum SumBlock(std::span<const float> values);
// The sum over all blocks, added in their order.
LogSum SumBlocks(std::span<const LogSum> blocks);
// ln of it; sum > 0.
inline double LogOf(const LogSum& sum) {
  return double{sum.largest} + Log(sum.sum);
}

}  // namespace trine
