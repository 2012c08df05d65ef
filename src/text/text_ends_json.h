// What a Hugging Face checkpoint says of the tokens that begin and end a text: the field
// post_processor of tokenizer.json, tokenizer_config.json and generation_config.json.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/core/json_fields.h"
#include "src/core/result.h"

namespace trine {

using TokenIds = std::unordered_map<std::string_view, int32_t>;  // of every token, by its text

// The token that the configuration names ("bos_token"), as a string or as an object with "content";
// -1 if none.
Result<int32_t> NamedToken(const JsonField& config, std::string_view name, const TokenIds& ids);

struct TextEnds {
  int32_t bos = -1, eos = -1, pad = -1;  // -1: none
  bool add_bos = false, add_eos = false;
};

// What the configuration says wins over the post-processor, but the two may not name different
// tokens.
Result<TextEnds> ReadTextEnds(const JsonField& post_processor, const JsonField& config,
                              const TokenIds& ids);

// The ids at which generation ends, in their order: eos_token_id, a number or several.
Result<std::vector<int32_t>> ReadEndIds(const JsonField& generation, const TokenIds& ids);

// The id of a token in a field such as "bos_token_id".
Result<int32_t> ReadTokenId(const JsonField& field, const TokenIds& ids);

}  // namespace trine
