// The tokenizer that every container's readers put together: special tokens, normalisation, cutting
// into pieces, BPE. It knows no container.
#pragma once

#include <memory>
#include <string>

#include "src/text/bpe.h"
#include "src/text/character_joins.h"
#include "src/text/nfc.h"
#include "src/text/pretokenizer.h"
#include "src/text/special_tokens.h"
#include "src/text/tokenizer.h"
#include "src/text/tokenizer_files.h"
#include "src/text/vocabulary.h"

namespace trine {

// In the order in which a text passes through them.
struct TokenizerParts {
  // Where a space is put in front of text.
  enum class Prefix {
    kNone,
    kText,    // of the whole text, and behind each token of `special`
    kStretch  // of each stretch between special tokens that does not begin with one
  };

  std::string model, pre;
  Vocabulary vocabulary;
  SpecialTokens special{{}};       // found in the text as it comes
  std::unique_ptr<const Nfc> nfc;  // nullptr: no normalisation
  bool spaces_are_marks = false;   // U+2581 in the text means a space
  Prefix prefix = Prefix::kNone;
  SpecialTokens normalized_special{{}};       // found in the text as it is now; none of control
                                              // type if there is an nfc
  std::unique_ptr<const PreTokenizer> words;  // one of these two
  std::unique_ptr<const CharacterJoins> joins;
  std::unique_ptr<const Bpe> bpe;
};

std::unique_ptr<Tokenizer> MakeTokenizer(TokenizerParts parts);

// Readers of containers; tokenizer.h says what they accept.
Result<std::unique_ptr<Tokenizer>> ReadByteLevelMetadata(const Metadata& meta);
Result<std::unique_ptr<Tokenizer>> ReadSentencePieceMetadata(const Metadata& meta);

// From the contents of the files; tokenizer.json is needed.
Result<std::unique_ptr<Tokenizer>> ReadTokenizerJson(const HfTokenizerFiles& files);

}  // namespace trine
