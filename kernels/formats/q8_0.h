// Q8_0: 32 signed bytes and an f16 scale. Source: ggml block_q8_0.
#pragma once

#include "kernels/formats/codes.h"
#include "kernels/half.h"
#include "kernels/tensor.h"

namespace trine::formats {

struct Q8_0 {
  static constexpr DType kType = DType::kQ8_0;
  static constexpr int kUnit = 32;  // columns that share one scale
  static constexpr CodeRange kCodes = kSignedByte;
  static constexpr bool kHasMin = false;
  struct Block {
    uint16_t d;
    int8_t q[32];
  };

  static void Decode(const Block& block, int /*unit*/, CodedUnit& out) {
    out.scale = F16ToFloat(block.d);
    for (int j = 0; j < 32; ++j) out.codes[j] = block.q[j];
  }
};

}  // namespace trine::formats
