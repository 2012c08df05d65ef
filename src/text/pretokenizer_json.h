// The field pre_tokenizer of a tokenizer.json, to the passes of a PreTokenizer and back. Split
// (Regex or String; Isolated or Removed), Digits, ByteLevel as the last one and a Sequence of these
// are known. It knows no vocabulary.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "src/core/json_fields.h"
#include "src/core/result.h"
#include "src/text/pretokenizer.h"

namespace trine {

struct JsonPreTokenizer {
  std::vector<SplitPass> passes;
  bool add_prefix_space = false;  // a space goes in front of text that has none there
};

// An error names the field that is not supported. Patterns are not compiled here.
Result<JsonPreTokenizer> ReadPreTokenizer(const JsonField& pre);

// Passes that keep both matches and gaps, as a Sequence of Splits and a ByteLevel.
nlohmann::ordered_json WritePreTokenizer(const std::vector<SplitPass>& passes);

}  // namespace trine
