// RandomStream: random numbers of one row of one tensor, the same on every machine and with every
// standard library. Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators (SplitMix).
#pragma once

#include <cstdint>

namespace trine {

// A value; streams of other keys are independent of it.
class RandomStream {
 public:
  static constexpr int64_t kSigns = -1;  // as `tensor`: the signs of a rotation

  RandomStream(uint64_t seed, int64_t tensor, int64_t row)
      : state_(Mix(Mix(Mix(seed) + static_cast<uint64_t>(tensor)) + static_cast<uint64_t>(row))) {}

  uint64_t Next() { return Mix(state_ += 0x9E3779B97F4A7C15u); }

  // From 0 to below 1, a multiple of 2^-24.
  float Uniform() { return static_cast<float>(Next() >> 40) * 0x1p-24f; }

  // Four uncorrelated numbers that are near enough to normal: mean 0, deviation `deviation`, below
  // 3.47 times it. Each is a sum of the same four uniform numbers with other signs.
  void Gaussians(float deviation, float* out) {
    const uint64_t bits = Next();
    const auto part = [&](int i) { return static_cast<int16_t>(bits >> (16 * i)); };
    const int32_t a = part(0) + part(1) + 1, b = part(0) - part(1);
    const int32_t c = part(2) + part(3) + 1, d = part(2) - part(3);  // + 1: the mean is -1/2 each
    const float scale = deviation * (1 / 37837.23f);                 // sqrt(4 * (65536^2 - 1) / 12)
    out[0] = static_cast<float>(a + c) * scale;
    out[1] = static_cast<float>(a - c) * scale;
    out[2] = static_cast<float>(b + d) * scale;
    out[3] = static_cast<float>(b - d) * scale;
  }

 private:
  static uint64_t Mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  uint64_t state_;
};

}  // namespace trine
