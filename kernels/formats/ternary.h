// The formats of two-bit codes. A weight is scale * (code - 1), code 0 to 3; all decode to the same
// unit, so that packings of the same codes give the same results. Sources: ggml block_tq1_0,
// block_tq2_0, block_q1_0, block_q2_0; PrismML's block_pq2_0, block_ptq1_0.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/half.h"
#include "kernels/tensor.h"

namespace trine::formats {

// Columns with one scale. Column c: bits 2 (c % 8) of eighths[c / 8].
struct TwoBitUnit {
  static constexpr int kMostColumns = 128;
  uint16_t scale = 0;  // f16
  uint16_t eighths[kMostColumns / 8] = {};

  int code(int column) const { return (eighths[column / 8] >> (2 * (column % 8))) & 3; }
  void Put(int column, int code) {
    eighths[column / 8] = static_cast<uint16_t>(eighths[column / 8] | code << (2 * (column % 8)));
  }
};

// Eight codes, one a byte, to 16 bits.
inline uint16_t Squeeze(uint64_t codes) {
  codes = (codes | codes >> 6) & 0x000F000F000F000Fu;
  codes = (codes | codes >> 12) & 0x000000FF000000FFu;
  return static_cast<uint16_t>(codes | codes >> 24);
}

// A byte holds ceil(q * 256 / 243), q a number of five base-3 digits, each a code 0 to 2. The
// leading digit is that of byte * 3 above 255, the rest go on with byte * 3 modulo 256.
// Digit n of byte m goes to column first + stride * n + m, for kBytes (8 or 16) bytes at once.
template <int kBytes>
inline void DecodeBase3(const uint8_t* bytes, int first, int stride, uint16_t* eighths) {
  typedef uint16_t U16 __attribute__((vector_size(kBytes)));
  typedef uint32_t U32 __attribute__((vector_size(kBytes)));
  typedef uint64_t U64 __attribute__((vector_size(kBytes)));
  U16 all;
  std::memcpy(&all, bytes, sizeof all);
  U16 even = all & 0xFF, odd = all >> 8;
  for (int n = 0; n < 5; ++n) {
    even = (even << 1) + even;
    odd = (odd << 1) + odd;
    const U16 pairs = (even >> 8) | (odd >> 8 << 2);
    const U32 fours = ((U32)pairs | (U32)pairs >> 12) & 0xFF;
    const U64 words = ((U64)fours | (U64)fours >> 24) & 0xFFFF;
    uint64_t halves[kBytes / 8];
    std::memcpy(halves, &words, sizeof halves);
    for (int half = 0; half < kBytes / 8; ++half) {
      eighths[(first + stride * n) / 8 + half] = static_cast<uint16_t>(halves[half]);
    }
    even &= 0xFF;
    odd &= 0xFF;
  }
}

// The same for `count` bytes of four digits, one by one.
inline void DecodeBase3Tail(const uint8_t* bytes, int count, int first, TwoBitUnit& out) {
  for (int m = 0; m < count; ++m) {
    int rest = bytes[m];
    for (int n = 0; n < 4; ++n, rest = rest * 3 & 255) {
      out.Put(first + count * n + m, rest * 3 >> 8);
    }
  }
}

struct PTQ1_0 {
  static constexpr DType kType = DType::kPTQ1_0;
  static constexpr int kUnit = 128;
  struct Block {
    uint8_t qs[24];
    uint8_t qh[2];
    uint16_t d;
  };

  static void Decode(const Block& block, int /*unit*/, TwoBitUnit& out) {
    out.scale = block.d;
    DecodeBase3<16>(block.qs, 0, 16, out.eighths);
    DecodeBase3<8>(block.qs + 16, 80, 8, out.eighths);
    out.eighths[15] = 0;
    DecodeBase3Tail(block.qh, 2, 120, out);
  }
};

struct TQ1_0 {
  static constexpr DType kType = DType::kTQ1_0;
  static constexpr int kUnit = 128;
  struct Block {
    uint8_t qs[48];
    uint8_t qh[4];
    uint16_t d;
  };

  // Columns 0 to 127 are digits 0 to 3 of the first 32 bytes.
  static void Decode(const Block& block, int unit, TwoBitUnit& out) {
    uint16_t first[160 / 8];
    for (int m = 0; m < 32; m += 16) DecodeBase3<16>(block.qs + m, m, 32, first);
    out = {};
    out.scale = block.d;
    if (unit == 0) {
      std::memcpy(out.eighths, first, sizeof out.eighths);
    } else {
      std::memcpy(out.eighths, first + 16, 4 * sizeof(uint16_t));
      DecodeBase3<16>(block.qs + 32, 32, 16, out.eighths);
      DecodeBase3Tail(block.qh, 4, 112, out);
    }
  }
};

struct TQ2_0 {
  static constexpr DType kType = DType::kTQ2_0;
  static constexpr int kUnit = 128;
  struct Block {
    uint8_t q[64];
    uint16_t d;
  };

  // Column 32 l + m of a unit: bits 2 l of byte m of its 32.
  static void Decode(const Block& block, int unit, TwoBitUnit& out) {
    out.scale = block.d;
    for (int m = 0; m < 32; m += 8) {
      uint64_t bytes;
      std::memcpy(&bytes, block.q + 32 * unit + m, sizeof bytes);
      for (int l = 0; l < 4; ++l, bytes >>= 2) {
        out.eighths[4 * l + m / 8] = Squeeze(bytes & 0x0303030303030303u);
      }
    }
  }
};

// One bit: -1 or 1.
struct Q1_0 {
  static constexpr DType kType = DType::kQ1_0;
  static constexpr int kUnit = 128;
  struct Block {
    uint16_t d;
    uint8_t q[16];
  };

  static void Decode(const Block& block, int /*unit*/, TwoBitUnit& out) {
    out.scale = block.d;
    for (int i = 0; i < 16; ++i) {
      uint32_t bits = block.q[i];
      bits = (bits | bits << 4) & 0x0F0Fu;
      bits = (bits | bits << 2) & 0x3333u;
      bits = (bits | bits << 1) & 0x5555u;
      out.eighths[i] = static_cast<uint16_t>(bits << 1);
    }
  }
};

template <DType kDType, int kColumns>
struct PlainTwoBit {
  static constexpr DType kType = kDType;
  static constexpr int kUnit = kColumns;
  struct Block {
    uint16_t d;
    uint8_t q[kColumns / 4];  // little endian, as the unit
  };

  static void Decode(const Block& block, int /*unit*/, TwoBitUnit& out) {
    out.scale = block.d;
    std::memcpy(out.eighths, block.q, sizeof block.q);
  }
};
using Q2_0 = PlainTwoBit<DType::kQ2_0, 64>;
using PQ2_0 = PlainTwoBit<DType::kPQ2_0, 128>;

}  // namespace trine::formats
