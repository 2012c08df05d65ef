// Vocabulary: what the metadata says of the tokens, whatever the tokenizer's model: their bytes and
// types, and which ids begin and end a text. It knows no merge and no score.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/metadata.h"
#include "src/core/result.h"
#include "src/text/piece_list.h"
#include "src/text/special_tokens.h"
#include "src/text/tokenizer.h"

namespace trine {

// The most tokens, and the most merges: ids and the symbols that merges add fit 32 bits.
constexpr size_t kMaxEntries = size_t{1} << 28;

struct Vocabulary {
  PieceList pieces;  // bytes by id; special tokens as they are written
  std::vector<TokenType> types;
  int32_t bos = -1;
  bool add_bos = false;
  std::vector<int32_t> end_of_generation;
  SpecialTokens always{{}};        // user-defined and unknown tokens
  SpecialTokens with_control{{}};  // these and the control tokens
};

// The bytes of a normal token from its text in the file. False: the text is its bytes.
using TextToBytes = bool (*)(std::string_view text, std::string* bytes);

// `add_bos` holds where the metadata does not say. An error names the key or token at fault: an
// array that is missing or not as long as another, a type or id out of range.
Result<Vocabulary> ReadVocabulary(const Metadata& meta, TextToBytes to_bytes, bool add_bos);

}  // namespace trine
