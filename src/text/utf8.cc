#include "src/text/utf8.h"

#include <utf8proc.h>

#include <cstring>

namespace trine {
namespace {

// The number of bytes a lead byte announces and the range of the byte that follows it; further ones
// are 80..BF always. count 0: no character begins so.
struct Lead {
  int count;
  unsigned char low, high;
};

Lead LeadOf(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step NextUtf8(std::string_view bytes) {
  using Kind = Utf8Step::Kind;
  const Lead lead = LeadOf(static_cast<unsigned char>(bytes[0]));
  if (lead.count == 0) return {Kind::kInvalid, 1};
  for (int i = 1; i < lead.count; ++i) {
    if (static_cast<size_t>(i) == bytes.size()) return {Kind::kTruncated, i};
    const auto byte = static_cast<unsigned char>(bytes[static_cast<size_t>(i)]);
    const unsigned char low = i == 1 ? lead.low : 0x80;
    const unsigned char high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {Kind::kInvalid, i};
  }
  return {Kind::kWhole, lead.count};
}

int64_t ValidUtf8Prefix(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    uint64_t eight = 0;
    if (bytes.size() - at >= sizeof eight) {
      std::memcpy(&eight, bytes.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    if (static_cast<unsigned char>(bytes[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Step step = NextUtf8(bytes.substr(at));
    if (step.kind != Utf8Step::Kind::kWhole) break;
    at += static_cast<size_t>(step.length);
  }
  return static_cast<int64_t>(at);
}

char32_t DecodeUtf8(std::string_view text, size_t* at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[*at + i]); };
  const size_t count = static_cast<size_t>(LeadOf(byte(0)).count);
  char32_t code_point = count == 1 ? byte(0) : byte(0) & (0x7Fu >> count);
  for (size_t i = 1; i < count; ++i) code_point = (code_point << 6) | (byte(i) & 0x3Fu);
  *at += count;
  return code_point;
}

void AppendUtf8(char32_t code_point, std::string* out) {
  const auto put = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
  } else {
    if (code_point < 0x10000) {
      put(0xE0 | (code_point >> 12));
    } else {
      put(0xF0 | (code_point >> 18));
      put(0x80 | ((code_point >> 12) & 0x3F));
    }
    put(0x80 | ((code_point >> 6) & 0x3F));
  }
  put(0x80 | (code_point & 0x3F));
}

bool IsWhiteSpace(char32_t c) {
  if (c < 0x100) return c == 0x20 || (c >= 0x9 && c <= 0xD) || c == 0x85 || c == 0xA0;
  return c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool IsWordCharacter(char32_t c) {
  const bool joiner = c == 0x200C || c == 0x200D;
  const bool circled = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                       (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  if (joiner || circled) return true;  // alphabetic symbols, which their category does not tell
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

}  // namespace trine
