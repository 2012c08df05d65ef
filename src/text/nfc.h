// Nfc: Unicode's normalisation form C, in linear time for any text. It knows no token.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trine {

// Immutable after creation, so any thread may use it.
class Nfc {
 public:
  Nfc();

  // `text` (valid UTF-8) in form C: itself where it is that already, else *buffer, which then holds
  // it.
  std::string_view Apply(std::string_view text, std::string* buffer) const;

 private:
  bool IsInert(char32_t code_point) const;

  // Bit c: c stays as it is whatever surrounds it, unless a character that is not inert follows.
  std::vector<bool> inert_;
};

}  // namespace trine
