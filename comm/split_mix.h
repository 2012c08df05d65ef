// Private to comm/: numbers that look random and that every rank can compute.
#pragma once

#include <cstdint>

namespace trine {

// Number n of the sequence SplitMix64 from 0 (Steele, Lea, Flood 2014).
inline uint64_t SplitMix(uint64_t n) {
  uint64_t x = n * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace trine
