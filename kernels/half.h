// f16 and bf16 as bits, in plain C++. `static` on purpose: every instruction-set unit gets its own
// copy, so that none of them can leak instructions into another.
#pragma once

#include <cstdint>
#include <cstring>

namespace trine {

static inline float BitsToFloat(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint32_t FloatToBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float BF16ToFloat(uint16_t h) {
  return BitsToFloat(static_cast<uint32_t>(h) << 16);
}

// Exact, subnormals included.
static inline float F16ToFloat(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t magnitude = h & 0x7FFFu;
  if (magnitude >= 0x7C00u) return BitsToFloat(sign | 0x7F800000u | (magnitude & 0x3FFu) << 13);
  if (magnitude >= 0x0400u) return BitsToFloat(sign | ((magnitude << 13) + 0x38000000u));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
  return BitsToFloat(sign | FloatToBits(subnormal));
}

// Round to nearest, ties to even; beyond the range: infinity.
static inline uint16_t FloatToF16(float value) {
  const uint32_t bits = FloatToBits(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7C00u);
  if (magnitude < 0x38800000u) {  // result is subnormal: 2^-24 is its last bit
    const float scaled = BitsToFloat(magnitude) + 0.5f;  // adding 2^-1 rounds at 2^-24
    return static_cast<uint16_t>(sign | (FloatToBits(scaled) - 0x3F000000u));
  }
  magnitude += 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u) >> 13));
}

}  // namespace trine
