// SentencePiece's BPE as a tokenizer.json has it (Llama 2 and its relatives), in the terms of GGUF.
#pragma once

#include <vector>

#include "src/core/json_fields.h"
#include "src/core/result.h"
#include "src/text/text_ends_json.h"
#include "src/text/tokenizer.h"

namespace trine {

// Whether the file is of this kind: it has no pre-tokeniser, or Metaspace.
bool IsSentencePieceJson(const JsonField& root);

struct SentencePieceRules {
  std::vector<double> scores;  // by id
  bool add_space_prefix = false;
};

// `ids` and *types are those of the tokens, types of what is not added still normal; those of byte
// tokens and the unknown one are set. Refuses, by name, what would give other ids than
// SentencePiece's BPE: merges that are not all ways to make each token, one token after the other;
// a space put in front only once; words that merges do not cross.
Result<SentencePieceRules> ReadSentencePieceJson(const JsonField& root, const TokenIds& ids,
                                                 std::vector<TokenType>* types);

}  // namespace trine
