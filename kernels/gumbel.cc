#include "kernels/gumbel.h"

#include "kernels/log_sum_exp.h"

namespace trine {
namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

double GumbelNoise(uint64_t seed, int32_t choice, int32_t position, int32_t token) {
  uint64_t hash = Mix(seed + 0x9E3779B97F4A7C15u);
  hash =
      Mix(hash ^ (uint64_t{static_cast<uint32_t>(choice)} << 32 | static_cast<uint32_t>(position)));
  hash = Mix(hash + 0x9E3779B97F4A7C15u * (static_cast<uint32_t>(token) + uint64_t{1}));
  const double u = (static_cast<double>(hash >> 12) + 0.5) * 0x1p-52;  // in (0, 1)
  return -Log(-Log(u));
}

}  // namespace trine
