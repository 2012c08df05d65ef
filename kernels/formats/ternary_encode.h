// Two-bit codes into the blocks of a format: the writers' side of ternary.h.
#pragma once

#include <cstring>

#include "kernels/formats/ternary.h"

namespace trine::formats {

namespace internal {

// The inverse of DecodeBase3: `digits` codes at columns first, first + stride, ... to one byte.
template <typename CodeAt>
uint8_t EncodeBase3(CodeAt code_at, int first, int stride, int digits) {
  int q = 0;
  for (int n = 0; n < 5; ++n) q = 3 * q + (n < digits ? code_at(first + stride * n) : 0);
  return static_cast<uint8_t>((q * 256 + 242) / 243);
}

// Whether every code lies in the set of allowed ones.
inline bool OnlyCodes(const TwoBitUnit& unit, int columns, uint32_t allowed) {
  for (int c = 0; c < columns; ++c) {
    if ((allowed >> unit.code(c) & 1) == 0) return false;
  }
  return true;
}

inline constexpr uint32_t kTrits = 0b0111, kSigns = 0b0101;

}  // namespace internal

// One block from its units, each of the format's kUnit columns. False if the block cannot hold
// them: a code 2 (+2) in base 3, a zero in Q1_0, two scales in the blocks of 256.
inline bool Encode(const TwoBitUnit* units, PTQ1_0::Block& out) {
  const auto code_at = [&](int c) { return units->code(c); };
  for (int m = 0; m < 16; ++m) out.qs[m] = internal::EncodeBase3(code_at, m, 16, 5);
  for (int m = 0; m < 8; ++m) out.qs[16 + m] = internal::EncodeBase3(code_at, 80 + m, 8, 5);
  for (int m = 0; m < 2; ++m) out.qh[m] = internal::EncodeBase3(code_at, 120 + m, 2, 4);
  out.d = units->scale;
  return internal::OnlyCodes(*units, 128, internal::kTrits);
}

inline bool Encode(const TwoBitUnit* units, TQ1_0::Block& out) {
  const auto code_at = [&](int c) { return units[c / 128].code(c % 128); };
  for (int m = 0; m < 32; ++m) out.qs[m] = internal::EncodeBase3(code_at, m, 32, 5);
  for (int m = 0; m < 16; ++m) out.qs[32 + m] = internal::EncodeBase3(code_at, 160 + m, 16, 5);
  for (int m = 0; m < 4; ++m) out.qh[m] = internal::EncodeBase3(code_at, 240 + m, 4, 4);
  out.d = units->scale;
  return units[0].scale == units[1].scale && internal::OnlyCodes(units[0], 128, internal::kTrits) &&
         internal::OnlyCodes(units[1], 128, internal::kTrits);
}

inline bool Encode(const TwoBitUnit* units, TQ2_0::Block& out) {
  std::memset(out.q, 0, sizeof out.q);
  for (int c = 0; c < 256; ++c) {
    uint8_t& byte = out.q[c / 128 * 32 + c % 32];
    byte = static_cast<uint8_t>(byte | units[c / 128].code(c % 128) << (2 * (c % 128 / 32)));
  }
  out.d = units->scale;
  return units[0].scale == units[1].scale;
}

inline bool Encode(const TwoBitUnit* units, Q1_0::Block& out) {
  std::memset(out.q, 0, sizeof out.q);
  for (int c = 0; c < 128; ++c) {
    out.q[c / 8] = static_cast<uint8_t>(out.q[c / 8] | units->code(c) >> 1 << (c % 8));
  }
  out.d = units->scale;
  return internal::OnlyCodes(*units, 128, internal::kSigns);
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
