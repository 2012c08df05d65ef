// The byte <-> character map of byte-level BPE: vocabularies write each byte of a token as one
// printable character (space is U+0120, line feed U+010A). It knows no vocabulary.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trine {

// Turns a token as a vocabulary writes it into its bytes. False, and *bytes unchanged, if `text` is
// not UTF-8 or has a character that stands for no byte.
bool ByteLevelToBytes(std::string_view text, std::string* bytes);

// The character of one byte, in UTF-8.
std::string ByteLevelCharacter(uint8_t byte);

}  // namespace trine
