#include "src/weights/conventions.h"

#include <bit>
#include <cmath>

namespace trine {
namespace {

float NegativeExp(float log) {
  return static_cast<float>(-std::exp(static_cast<double>(log)));
}

// The number with the most zeros at its end that `forward` maps to `value`, near `guess`; `guess`
// if it does not and its neighbours neither.
template <typename Forward>
float Shortest(float guess, float value, Forward forward) {
  for (int bits = 22; bits >= 0; --bits) {  // zeros at the end of 23 bits of fraction
    const uint32_t unit = uint32_t{1} << bits;
    const auto near = (std::bit_cast<uint32_t>(guess) + unit / 2) & ~(unit - 1);
    const auto candidate = std::bit_cast<float>(near);
    if (std::isfinite(candidate) && forward(candidate) == value) return candidate;
  }
  for (const float neighbour :
       {std::nextafter(guess, -INFINITY), std::nextafter(guess, INFINITY)}) {
    if (forward(neighbour) == value) return neighbour;
  }
  return guess;
}

}  // namespace

void FromStored(StoredAs stored_as, std::span<float> values) {
  for (float& value : values) {
    if (stored_as == StoredAs::kLessOne) value += 1.0f;
    if (stored_as == StoredAs::kLogOfNegative) value = NegativeExp(value);
  }
}

void ToStored(StoredAs stored_as, std::span<float> values) {
  for (float& value : values) {
    if (stored_as == StoredAs::kLessOne) value -= 1.0f;
    if (stored_as == StoredAs::kLogOfNegative) {
      value =
          Shortest(static_cast<float>(std::log(-static_cast<double>(value))), value, NegativeExp);
    }
  }
}

}  // namespace trine
