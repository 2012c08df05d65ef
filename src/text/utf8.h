// UTF-8: validating and stepping through it, and two kinds of characters. It knows no token. Strict
// as Unicode's table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trine {

// What stands at the start of some bytes.
struct Utf8Step {
  enum class Kind {
    kWhole,      // one character of `length` bytes
    kTruncated,  // the bytes end inside a character: all `length` of them could begin one
    kInvalid     // `length` bytes that can begin no character (>= 1): one U+FFFD replaces them
  };
  Kind kind;
  int length;
};

// `bytes` must not be empty.
Utf8Step NextUtf8(std::string_view bytes);

// The length of the longest prefix made of whole characters: bytes.size() if all is valid.
int64_t ValidUtf8Prefix(std::string_view bytes);

// The code point at text[*at], which moves behind it. `text` must be valid and *at inside it.
char32_t DecodeUtf8(std::string_view text, size_t* at);

void AppendUtf8(char32_t code_point, std::string* out);

bool IsWhiteSpace(char32_t code_point);  // Unicode's White_Space

// Letters, marks, decimal digits, connectors and joiners: Unicode's \w (UTS 18, annex C).
bool IsWordCharacter(char32_t code_point);

}  // namespace trine
