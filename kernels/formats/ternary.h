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
// out[n]: digit n of kBytes (8 or 16) bytes, two bits each, in 16 or 32 bits.
template <int kBytes, typename Packed>
inline void DecodeBase3(const uint8_t* bytes, Packed* out) {
  static_assert(sizeof(Packed) * 4 == kBytes);
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
    const U64 eights = ((U64)fours | (U64)fours >> 24) & 0xFFFF;
    uint64_t halves[kBytes / 8];
    std::memcpy(halves, &eights, sizeof halves);
    out[n] = static_cast<Packed>(halves[0]);
    if constexpr (kBytes == 16) out[n] |= static_cast<Packed>(halves[1] << 16);
    even &= 0xFF;
    odd &= 0xFF;
  }
}

// kCount bytes of four digits, digit n of byte m in column kCount * n + m of those returned.
template <int kCount>
inline uint32_t DecodeBase3Tail(const uint8_t* bytes) {
  uint32_t codes = 0;
  for (int m = 0; m < kCount; ++m) {
    uint32_t rest = bytes[m];
    for (int n = 0; n < 4; ++n, rest = rest * 3 & 255) {
      codes |= (rest * 3 >> 8) << (2 * (kCount * n + m));
    }
  }
  return codes;
}

// Column c of a unit: bits 2 (c % 16) of words[c / 16]. Whole words are written, because whole
// words are read next.
inline void PutWords(const uint32_t* words, TwoBitUnit& out) {
  std::memcpy(out.eighths, words, sizeof out.eighths);
}

struct PTQ1_0 {
  static constexpr DType kType = DType::kPTQ1_0;
  static constexpr int kUnit = 128;
  struct Block {
    uint8_t qs[24];
    uint8_t qh[2];
    uint16_t d;
  };

  // Columns 0 to 79: digits of the first 16 bytes; to 119: of the next 8; then the tail.
  static void Decode(const Block& block, int /*unit*/, TwoBitUnit& out) {
    uint32_t words[8];
    uint16_t last[5];
    DecodeBase3<16>(block.qs, words);
    DecodeBase3<8>(block.qs + 16, last);
    words[5] = last[0] | static_cast<uint32_t>(last[1]) << 16;
    words[6] = last[2] | static_cast<uint32_t>(last[3]) << 16;
    words[7] = last[4] | DecodeBase3Tail<2>(block.qh) << 16;
    PutWords(words, out);
    out.scale = block.d;
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

  // Columns 0 to 159: digits of the first 32 bytes; to 239: of the next 16; then the tail.
  static void Decode(const Block& block, int unit, TwoBitUnit& out) {
    uint32_t words[16], low[5], high[5];
    DecodeBase3<16>(block.qs, low);
    DecodeBase3<16>(block.qs + 16, high);
    for (int n = 0; n < 5; ++n) {
      words[2 * n] = low[n];
      words[2 * n + 1] = high[n];
    }
    DecodeBase3<16>(block.qs + 32, words + 10);
    words[15] = DecodeBase3Tail<4>(block.qh);
    PutWords(words + 8 * unit, out);
    out.scale = block.d;
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
