// F32, F16, BF16: one value, no block. Source: IEEE 754; bfloat16 is the upper half of an f32.
#pragma once

#include "kernels/half.h"
#include "kernels/tensor.h"

namespace trine::formats {

struct F32 {
  static constexpr DType kType = DType::kF32;
  using Element = float;
  static float Decode(float value) { return value; }
};

struct F16 {
  static constexpr DType kType = DType::kF16;
  using Element = uint16_t;
  static float Decode(uint16_t bits) { return F16ToFloat(bits); }
};

struct BF16 {
  static constexpr DType kType = DType::kBF16;
  using Element = uint16_t;
  static float Decode(uint16_t bits) { return BF16ToFloat(bits); }
};

}  // namespace trine::formats
