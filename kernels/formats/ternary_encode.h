// Two-bit codes into the blocks of a format: the writers' side of ternary.h.
#pragma once

#include <cstring>

#include "kernels/formats/ternary.h"

namespace trine::formats {

namespace internal {

// The inverse of Squeeze: eight codes to one a byte.
inline uint64_t Spread(uint16_t eighth) {
  uint64_t codes = eighth;
  codes = (codes | codes << 24) & 0x000000FF000000FFu;
  codes = (codes | codes << 12) & 0x000F000F000F000Fu;
  return (codes | codes << 6) & 0x0303030303030303u;
}

// A number of five base-3 digits to its byte.
inline uint8_t Base3Byte(uint32_t q) {
  return static_cast<uint8_t>((q * 256 + 242) / 243);
}

// The inverse of DecodeBase3: codes at columns first + stride * n + m to eight bytes. A code above
// 2 spoils them.
inline void EncodeBase3(const uint16_t* eighths, int first, int stride, uint8_t* bytes) {
  uint64_t q = 0;
  for (int n = 0; n < 5; ++n) q = 3 * q + Spread(eighths[(first + stride * n) / 8]);
  for (int m = 0; m < 8; ++m) bytes[m] = Base3Byte(q >> (8 * m) & 0xFF);
}

// The inverse of DecodeBase3Tail.
inline void EncodeBase3Tail(const TwoBitUnit& unit, int count, int first, uint8_t* bytes) {
  for (int m = 0; m < count; ++m) {
    uint32_t q = 0;
    for (int n = 0; n < 4; ++n) q = 3 * q + static_cast<uint32_t>(unit.code(first + count * n + m));
    bytes[m] = Base3Byte(3 * q);
  }
}

inline bool OnlyTrits(const TwoBitUnit& unit) {
  uint32_t threes = 0;
  for (const uint16_t eighth : unit.eighths) threes |= eighth & eighth >> 1 & 0x5555u;
  return threes == 0;
}

inline bool OnlySigns(const TwoBitUnit& unit) {
  uint32_t low = 0;  // bits of codes 1 and 3
  for (const uint16_t eighth : unit.eighths) low |= eighth & 0x5555u;
  return low == 0;
}

}  // namespace internal

// One block from its units, each of the format's kUnit columns. False if the block cannot hold
// them: a code 2 (+2) in base 3, a zero in Q1_0, two scales in the blocks of 256.
inline bool Encode(const TwoBitUnit* units, PTQ1_0::Block& out) {
  for (int m = 0; m < 16; m += 8) internal::EncodeBase3(units->eighths, m, 16, out.qs + m);
  internal::EncodeBase3(units->eighths, 80, 8, out.qs + 16);
  internal::EncodeBase3Tail(*units, 2, 120, out.qh);
  out.d = units->scale;
  return internal::OnlyTrits(*units);
}

inline bool Encode(const TwoBitUnit* units, TQ1_0::Block& out) {
  uint16_t first[160 / 8];  // columns 0 to 159
  std::memcpy(first, units[0].eighths, sizeof units[0].eighths);
  std::memcpy(first + 16, units[1].eighths, 4 * sizeof(uint16_t));
  for (int m = 0; m < 32; m += 8) internal::EncodeBase3(first, m, 32, out.qs + m);
  for (int m = 0; m < 16; m += 8) {
    internal::EncodeBase3(units[1].eighths, 32 + m, 16, out.qs + 32 + m);
  }
  internal::EncodeBase3Tail(units[1], 4, 112, out.qh);
  out.d = units->scale;
  return units[0].scale == units[1].scale && internal::OnlyTrits(units[0]) &&
         internal::OnlyTrits(units[1]);
}

inline bool Encode(const TwoBitUnit* units, TQ2_0::Block& out) {
  for (int m = 0; m < 64; m += 8) {
    uint64_t bytes = 0;
    for (int l = 0; l < 4; ++l) {
      bytes |= internal::Spread(units[m / 32].eighths[4 * l + m % 32 / 8]) << (2 * l);
    }
    std::memcpy(out.q + m, &bytes, sizeof bytes);
  }
  out.d = units->scale;
  return units[0].scale == units[1].scale;
}

inline bool Encode(const TwoBitUnit* units, Q1_0::Block& out) {
  for (int i = 0; i < 16; ++i) {
    uint32_t bits = units->eighths[i] >> 1 & 0x5555u;
    bits = (bits | bits >> 1) & 0x3333u;
    bits = (bits | bits >> 2) & 0x0F0Fu;
    out.q[i] = static_cast<uint8_t>(bits | bits >> 4);
  }
  out.d = units->scale;
  return internal::OnlySigns(*units);
}

inline bool Encode(const TwoBitUnit* units, PQ2_0::Block& out) {
  out.d = units->scale;
  std::memcpy(out.q, units->eighths, sizeof out.q);
  return true;
}

inline bool Encode(const TwoBitUnit* units, Q2_0::Block& out) {
  out.d = units->scale;
  std::memcpy(out.q, units->eighths, sizeof out.q);
  return true;
}

}  // namespace trine::formats
