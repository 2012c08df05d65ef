#include "src/weights/llama3_rope.h"

#include <cmath>

namespace trine {

std::vector<float> Llama3Rope::Divisors(double base, int64_t dims) const {
  std::vector<float> divisors;
  for (int64_t i = 0; i < dims / 2; ++i) {
    const double frequency =
        std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dims));
    const double turns = original_context * frequency / (2 * M_PI);  // over the original context
    double divisor = factor;                                         // slow pairs
    if (turns > high_freq) {
      divisor = 1;
    } else if (turns >= low_freq) {
      const double fast = (turns - low_freq) / (high_freq - low_freq);
      divisor = 1 / ((1 - fast) / factor + fast);
    }
    divisors.push_back(static_cast<float>(divisor));
  }
  return divisors;
}

}  // namespace trine
