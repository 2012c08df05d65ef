#include "kernels/gumbel.h"

#include <bit>

namespace trine {
namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// ln x for normal x > 0: x = m 2^e with m in [sqrt(1/2), sqrt(2)), ln m = 2 atanh((m-1)/(m+1)).
double Log(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFu) | 0x3FF0000000000000u);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1) / (m + 1), square = s * s;
  double sum = 0;
  for (int k = 19; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return 2 * s * sum + exponent * 0.6931471805599453;
}

}  // namespace

double GumbelNoise(uint64_t seed, int32_t position, int32_t token) {
  uint64_t hash = Mix(seed + 0x9E3779B97F4A7C15u);
  hash = Mix(hash ^ static_cast<uint32_t>(position));
  hash = Mix(hash + 0x9E3779B97F4A7C15u * (static_cast<uint32_t>(token) + uint64_t{1}));
  const double u = (static_cast<double>(hash >> 12) + 0.5) * 0x1p-52;  // in (0, 1)
  return -Log(-Log(u));
}

}  // namespace trine
