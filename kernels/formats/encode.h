// f32 values into plain elements and into the blocks of Q8_0, Q4_0 and Q4_1: the writers' side of
// plain.h, q8_0.h and q4.h. Values must be finite and within f16's range where the scale is f16.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/formats/plain.h"
#include "kernels/formats/q4.h"
#include "kernels/formats/q8_0.h"

namespace trine::formats {

// The nearest element, ties to even.
inline float ToElement(F32 /*format*/, float value) {
  return value;
}
inline uint16_t ToElement(F16 /*format*/, float value) {
  return FloatToF16(value);
}
inline uint16_t ToElement(BF16 /*format*/, float value) {
  const uint32_t bits = FloatToBits(value);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

namespace internal {
// `code` to the nearest integer from 0 to 15; it must not be below -0.5.
inline int Nibble(float code) {
  return std::min(15, static_cast<int>(code + 0.5f));
}
}  // namespace internal

// One block from its 32 values, as ggml's reference quantisers choose scale and minimum.
inline void Encode(const float* values, Q8_0::Block& out) {
  float largest = 0;
  for (int j = 0; j < 32; ++j) largest = std::max(largest, std::abs(values[j]));
  const float scale = largest / 127;
  const float inverse = scale < 0x1p-126f ? 0 : 1 / scale;  // where it might overflow, d is 0
  out.d = FloatToF16(scale);
  for (int j = 0; j < 32; ++j) {
    const float code = values[j] * inverse;
    out.q[j] = static_cast<int8_t>(code + (code < 0 ? -0.5f : 0.5f));
  }
}

inline void Encode(const float* values, Q4_0::Block& out) {
  float extreme = 0;  // the value of largest magnitude gets code -8
  for (int j = 0; j < 32; ++j) {
    if (std::abs(values[j]) > std::abs(extreme)) extreme = values[j];
  }
  const float scale = extreme / -8;
  const float inverse = extreme == 0 ? 0 : 1 / scale;
  out.d = FloatToF16(scale);
  const auto code = [&](int j) { return internal::Nibble(values[j] * inverse + 8); };
  for (int j = 0; j < 16; ++j) out.q[j] = static_cast<uint8_t>(code(j) | code(j + 16) << 4);
}

inline void Encode(const float* values, Q4_1::Block& out) {
  const auto [least, most] = std::minmax_element(values, values + 32);
  const float scale = (*most - *least) / 15, min = *least;
  const float inverse = scale == 0 ? 0 : 1 / scale;
  out.d = FloatToF16(scale);
  out.m = FloatToF16(min);
  const auto code = [&](int j) { return internal::Nibble((values[j] - min) * inverse); };
  for (int j = 0; j < 16; ++j) out.q[j] = static_cast<uint8_t>(code(j) | code(j + 16) << 4);
}

}  // namespace trine::formats
