// Q4_K, Q5_K, Q6_K: 256 columns in sub-blocks with scales of their own, under one f16 scale (and
// minimum). Source: ggml block_q4_K, block_q5_K, block_q6_K.
#pragma once

#include "kernels/formats/codes.h"
#include "kernels/half.h"
#include "kernels/tensor.h"

namespace trine::formats {

// Scale and minimum of sub-block j (0..7) of Q4_K and Q5_K: eight pairs of six bits in twelve
// bytes, times the block's own.
template <typename Block>
static inline void DecodeScaleMin(const Block& block, int j, CodedUnit& out) {
  const uint8_t* s = block.scales;
  int scale = s[j] & 63, min = s[j + 4] & 63;
  if (j >= 4) {
    scale = (s[j + 4] & 15) | ((s[j - 4] >> 6) << 4);
    min = (s[j + 4] >> 4) | ((s[j] >> 6) << 4);
  }
  out.scale = F16ToFloat(block.d) * static_cast<float>(scale);
  out.min = -F16ToFloat(block.dmin) * static_cast<float>(min);
}

struct Q4_K {
  static constexpr DType kType = DType::kQ4_K;
  static constexpr int kUnit = 32;
  static constexpr CodeRange kCodes = kNibble;
  static constexpr bool kHasMin = true;
  struct Block {
    uint16_t d;
    uint16_t dmin;
    uint8_t scales[12];
    uint8_t q[128];
  };

  static void Decode(const Block& block, int unit, CodedUnit& out) {
    DecodeScaleMin(block, unit, out);
    const int shift = (unit & 1) * 4;
    for (int l = 0; l < 32; ++l) {
      out.codes[l] = static_cast<int8_t>((block.q[32 * (unit / 2) + l] >> shift) & 15);
    }
  }
};

struct Q5_K {
  static constexpr DType kType = DType::kQ5_K;
  static constexpr int kUnit = 32;
  static constexpr CodeRange kCodes = kSignedByte;
  static constexpr bool kHasMin = true;
  struct Block {
    uint16_t d;
    uint16_t dmin;
    uint8_t scales[12];
    uint8_t high[32];
    uint8_t q[128];
  };

  static void Decode(const Block& block, int unit, CodedUnit& out) {
    DecodeScaleMin(block, unit, out);
    const int shift = (unit & 1) * 4;
    for (int l = 0; l < 32; ++l) {
      const int low = (block.q[32 * (unit / 2) + l] >> shift) & 15;
      out.codes[l] = static_cast<int8_t>(low + 16 * ((block.high[l] >> unit) & 1));
    }
  }
};

struct Q6_K {
  static constexpr DType kType = DType::kQ6_K;
  static constexpr int kUnit = 16;
  static constexpr CodeRange kCodes = kSignedByte;
  static constexpr bool kHasMin = false;
  struct Block {
    uint8_t low[128];
    uint8_t high[64];
    int8_t scales[16];
    uint16_t d;
  };

  // Unit u covers columns 16u .. 16u+15: half h = u / 8, quarter (u / 2) % 4 of that half.
  static void Decode(const Block& block, int unit, CodedUnit& out) {
    const int half = unit / 8, quarter = (unit / 2) % 4, offset = (unit % 2) * 16;
    out.scale = F16ToFloat(block.d) * static_cast<float>(block.scales[unit]);
    const uint8_t* low = block.low + 64 * half + 32 * (quarter & 1) + offset;
    const uint8_t* high = block.high + 32 * half + offset;
    for (int l = 0; l < 16; ++l) {
      const int nibble = (low[l] >> (quarter / 2 * 4)) & 15;
      const int top = (high[l] >> (2 * quarter)) & 3;
      out.codes[l] = static_cast<int8_t>((nibble | top << 4) - 32);
    }
  }
};

}  // namespace trine::formats
