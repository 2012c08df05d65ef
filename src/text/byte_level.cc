#include "src/text/byte_level.h"

#include <algorithm>
#include <array>

#include "src/text/utf8.h"

namespace trine {
namespace {

constexpr int kMapSize = 0x100 + 68;  // 68 bytes have no printable character of their own

constexpr bool IsPrintable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// The byte each code point stands for, -1 if none.
constexpr std::array<int16_t, kMapSize> MakeMap() {
  std::array<int16_t, kMapSize> map{};
  for (int16_t& byte : map) byte = -1;
  size_t next = 0x100;
  for (int16_t byte = 0; byte < 0x100; ++byte) {
    map[IsPrintable(byte) ? static_cast<size_t>(byte) : next++] = byte;
  }
  return map;
}

constexpr std::array<int16_t, kMapSize> kByteOf = MakeMap();

}  // namespace

bool ByteLevelToBytes(std::string_view text, std::string* bytes) {
  if (ValidUtf8Prefix(text) != static_cast<int64_t>(text.size())) return false;
  std::string mapped;
  for (size_t at = 0; at < text.size();) {
    const char32_t code_point = DecodeUtf8(text, &at);
    if (code_point >= kMapSize || kByteOf[code_point] < 0) return false;
    mapped.push_back(static_cast<char>(kByteOf[code_point]));
  }
  *bytes = std::move(mapped);
  return true;
}

std::string ByteLevelCharacter(uint8_t byte) {
  const auto* found = std::find(kByteOf.begin(), kByteOf.end(), static_cast<int16_t>(byte));
  std::string character;
  AppendUtf8(static_cast<char32_t>(found - kByteOf.begin()), &character);
  return character;
}

}  // namespace trine
