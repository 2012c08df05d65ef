// What every block format decodes to: units of equally scaled columns. A weight is
//     scale * code + min,   code an integer, min = 0 unless the format has one.
// Kernels repack and multiply units; they never see a format.
#pragma once

#include <cstdint>

namespace trine::formats {

// The codes of a format lie in [lowest, lowest + 2^bits). Four-bit codes are kept as nibbles.
struct CodeRange {
  int bits;
  int lowest;
};

inline constexpr CodeRange kSignedByte{8, -128};
inline constexpr CodeRange kNibble{4, 0};          // 0 .. 15
inline constexpr CodeRange kCentredNibble{4, -8};  // -8 .. 7

inline constexpr int kMaxUnit = 32;

struct CodedUnit {
  float scale = 0;
  float min = 0;
  int8_t codes[kMaxUnit] = {};
};

}  // namespace trine::formats
