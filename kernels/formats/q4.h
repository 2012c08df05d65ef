// Q4_0 and Q4_1: 32 nibbles with an f16 scale, and in Q4_1 an f16 minimum. Column j is the low
// nibble of byte j, column j + 16 the high one. Source: ggml block_q4_0, block_q4_1.
#pragma once

#include "kernels/formats/codes.h"
#include "kernels/half.h"
#include "kernels/tensor.h"

namespace trine::formats {

struct Q4_0 {
  static constexpr DType kType = DType::kQ4_0;
  static constexpr int kUnit = 32;
  static constexpr CodeRange kCodes = kCentredNibble;
  static constexpr bool kHasMin = false;
  struct Block {
    uint16_t d;
    uint8_t q[16];
  };

  static void Decode(const Block& block, int /*unit*/, CodedUnit& out) {
    out.scale = F16ToFloat(block.d);
    for (int j = 0; j < 16; ++j) {
      out.codes[j] = static_cast<int8_t>((block.q[j] & 15) - 8);
      out.codes[j + 16] = static_cast<int8_t>((block.q[j] >> 4) - 8);
    }
  }
};

struct Q4_1 {
  static constexpr DType kType = DType::kQ4_1;
  static constexpr int kUnit = 32;
  static constexpr CodeRange kCodes = kNibble;
  static constexpr bool kHasMin = true;
  struct Block {
    uint16_t d;
    uint16_t m;
    uint8_t q[16];
  };

  static void Decode(const Block& block, int /*unit*/, CodedUnit& out) {
    out.scale = F16ToFloat(block.d);
    out.min = F16ToFloat(block.m);
    for (int j = 0; j < 16; ++j) {
      out.codes[j] = static_cast<int8_t>(block.q[j] & 15);
      out.codes[j + 16] = static_cast<int8_t>(block.q[j] >> 4);
    }
  }
};

}  // namespace trine::formats
