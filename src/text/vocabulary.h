// Vocabulary: what a file says of the tokens, whatever the tokenizer's model: their bytes and
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

// Whether a control token with this text is known to end one, whatever the file says.
bool IsEndMarker(std::string_view text);

struct Vocabulary {
  PieceList pieces;  // bytes by id; special tokens as they are written
  std::vector<TokenType> types;
  int32_t bos = -1, eos = -1, pad = -1, unknown = -1;
  bool add_bos = false, add_eos = false;
  std::vector<int32_t> end_of_generation;
  std::string chat_template;

  int64_t size() const { return pieces.size(); }

  // Every token of the type, to be found in text.
  void AppendSpecial(TokenType type, std::vector<SpecialTokens::Token>* tokens) const;

  // bos, eos and `turn_end` (-1: none) are control tokens also where the file types them
  // user-defined: text must never give them.
  void MarkEnds(int32_t turn_end);

  // Fills end_of_generation: eos, `turn_end` (-1: none) and the control tokens known to end a text.
  void CollectEndTokens(int32_t turn_end);

  // Whether `id` begins or ends a text: BOS, or one of end_of_generation.
  bool IsEnd(int32_t id) const;

  // An error where add_bos or add_eos want a token that is not there. `bos_key`, `eos_key`: where
  // the file would name it.
  Status CheckEnds(std::string_view bos_key, std::string_view eos_key) const;
};

// The bytes of a token from its text in the file. False: the text is its bytes.
using TextToBytes = bool (*)(std::string_view text, TokenType type, std::string* bytes);

// What holds where the metadata does not say.
struct VocabularyDefaults {
  int32_t bos = -1, eos = -1, unknown = -1;  // as far as there are such ids
  bool add_bos = false;
};

// An error names the key or token at fault: an array that is missing or not as long as another, a
// type or id out of range.
Result<Vocabulary> ReadVocabulary(const Metadata& meta, TextToBytes to_bytes,
                                  const VocabularyDefaults& defaults);

}  // namespace trine
