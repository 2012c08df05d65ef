// Llama 3's rule for long contexts: what the rotary frequencies are divided by. GGUF files carry
// the result (rope_freqs.weight), Hugging Face's configurations the numbers that make it. Source:
// Llama 3.1's reference code.
#pragma once

#include <cstdint>
#include <vector>

namespace trine {

struct Llama3Rope {
  double factor = 1;
  double low_freq = 1;
  double high_freq = 4;
  double original_context = 0;  // tokens

  // Of each rotary pair, [dims / 2].
  std::vector<float> Divisors(double base, int64_t dims) const;
};

}  // namespace trine
