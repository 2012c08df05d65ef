#include "src/core/quote.h"

namespace trine {

std::string Quote(std::string_view text) {
  constexpr size_t kShown = 60;
  constexpr char kHex[] = "0123456789abcdef";
  std::string quoted = "'";
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7F) {
      quoted += c;
    } else {
      quoted += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return quoted + (text.size() > kShown ? "...'" : "'");
}

}  // namespace trine
