#include "src/text/vocabulary.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "src/text/utf8.h"

namespace trine {
namespace {

constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTypes = "tokenizer.ggml.token_type";

constexpr std::string_view kEndMarkers[] = {"<|im_end|>",      "<|endoftext|>", "<|eot_id|>",
                                            "<|end_of_text|>", "</s>",          "<end_of_turn>"};

Status ReadTypes(const Metadata& meta, size_t count, std::vector<TokenType>* types) {
  TRINE_ASSIGN(const std::vector<int64_t>* given, meta.Ints(kTypes));
  if (given == nullptr) {
    types->assign(count, TokenType::kNormal);
    return {};
  }
  if (given->size() != count) {
    return BadInput(std::string(kTokens) + " has " + std::to_string(count) + " entries and " +
                    kTypes + " " + std::to_string(given->size()) +
                    "; they must be equal, convert the file again");
  }
  for (size_t id = 0; id < count; ++id) {
    const int64_t type = (*given)[id];
    if (type < static_cast<int64_t>(TokenType::kNormal) ||
        type > static_cast<int64_t>(TokenType::kByte)) {
      return BadInput(std::string(kTypes) + "[" + std::to_string(id) + "] is " +
                      std::to_string(type) + ", not a type from 1 to 6; convert the file again");
    }
    types->push_back(static_cast<TokenType>(type));
  }
  return {};
}

// An id that another key names; `fallback` if the key is absent and there is such an id, else -1.
Result<int32_t> ReadId(const Metadata& meta, std::string_view key, size_t count, int32_t fallback) {
  if (meta.Find(key) == nullptr) return fallback < static_cast<int64_t>(count) ? fallback : -1;
  TRINE_ASSIGN(const int64_t id, meta.Int(key));
  if (id < 0 || id >= static_cast<int64_t>(count)) {
    return BadInput(std::string(key) + " is " + std::to_string(id) + ", but the vocabulary has " +
                    std::to_string(count) + " tokens; correct the key");
  }
  return static_cast<int32_t>(id);
}

Status ReadPieces(const std::vector<std::string>& tokens, TextToBytes to_bytes,
                  Vocabulary* vocabulary) {
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (ValidUtf8Prefix(tokens[id]) != static_cast<int64_t>(tokens[id].size())) {
      return BadInput(std::string(kTokens) + "[" + std::to_string(id) +
                      "] is not valid UTF-8; convert the file again");
    }
    std::string bytes;
    const TokenType type = vocabulary->types[id];
    const bool special = type == TokenType::kControl || type == TokenType::kUserDefined ||
                         type == TokenType::kUnknown;
    if (special && tokens[id].size() > kMaxSpecialBytes) {
      return BadInput(std::string(kTokens) + "[" + std::to_string(id) + "] is " +
                      std::to_string(tokens[id].size()) + " bytes long; at most " +
                      std::to_string(kMaxSpecialBytes) +
                      " are supported for one that is not normal text");
    }
    vocabulary->pieces.Append(to_bytes(tokens[id], type, &bytes) ? bytes : tokens[id]);
  }
  return {};
}

}  // namespace

bool IsEndMarker(std::string_view text) {
  return std::count(std::begin(kEndMarkers), std::end(kEndMarkers), text) != 0;
}

void Vocabulary::AppendSpecial(TokenType type, std::vector<SpecialTokens::Token>* tokens) const {
  for (int32_t id = 0; id < static_cast<int32_t>(size()); ++id) {
    if (types[static_cast<size_t>(id)] != type) continue;
    tokens->push_back({std::string(pieces[id]), id, type != TokenType::kUserDefined});
  }
}

void Vocabulary::MarkEnds(int32_t turn_end) {
  for (const int32_t id : {bos, eos, turn_end}) {
    if (id < 0) continue;
    TokenType& type = types[static_cast<size_t>(id)];
    if (type == TokenType::kUserDefined) type = TokenType::kControl;
  }
}

bool Vocabulary::IsEnd(int32_t id) const {
  return id == bos || std::binary_search(end_of_generation.begin(), end_of_generation.end(), id);
}

void Vocabulary::CollectEndTokens(int32_t turn_end) {
  std::vector<int32_t>& ends = end_of_generation;
  for (const int32_t id : {eos, turn_end}) {
    if (id >= 0) ends.push_back(id);
  }
  for (int32_t id = 0; id < static_cast<int32_t>(size()); ++id) {
    if (types[static_cast<size_t>(id)] != TokenType::kControl) continue;
    if (IsEndMarker(pieces[id])) ends.push_back(id);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
}

Status Vocabulary::CheckEnds(std::string_view bos_key, std::string_view eos_key) const {
  const auto missing = [](const char* does, std::string_view key, std::string_view instead) {
    return BadInput("this tokenizer " + std::string(does) + " token, but " + std::string(key) +
                    " is missing; add it or set " + std::string(instead) + " to false");
  };
  const auto flag_of = [](std::string_view key, const char* name) {
    const size_t dot = key.rfind('.');
    return std::string(key.substr(0, dot == std::string_view::npos ? 0 : dot + 1)) + name;
  };
  if (add_bos && bos < 0) {
    return missing("begins prompts with a BOS", bos_key, flag_of(bos_key, "add_bos_token"));
  }
  if (add_eos && eos < 0) {
    return missing("ends texts with an EOS", eos_key, flag_of(eos_key, "add_eos_token"));
  }
  return {};
}

Result<Vocabulary> ReadVocabulary(const Metadata& meta, TextToBytes to_bytes,
                                  const VocabularyDefaults& defaults) {
  TRINE_ASSIGN(const std::vector<std::string>* tokens, meta.Strings(kTokens));
  if (tokens == nullptr || tokens->empty() || tokens->size() > kMaxEntries) {
    return BadInput(
        std::string(kTokens) + " is " +
        (tokens == nullptr ? "missing" : std::to_string(tokens->size()) + " entries long") +
        "; a model file needs 1 to " + std::to_string(kMaxEntries) + " tokens");
  }
  Vocabulary vocabulary;
  const size_t count = tokens->size();
  TRINE_RETURN_IF_ERROR(ReadTypes(meta, count, &vocabulary.types));
  constexpr std::string_view kBos = "tokenizer.ggml.bos_token_id";
  constexpr std::string_view kEos = "tokenizer.ggml.eos_token_id";
  TRINE_ASSIGN(vocabulary.bos, ReadId(meta, kBos, count, defaults.bos));
  TRINE_ASSIGN(vocabulary.eos, ReadId(meta, kEos, count, defaults.eos));
  TRINE_ASSIGN(vocabulary.pad, ReadId(meta, "tokenizer.ggml.padding_token_id", count, -1));
  TRINE_ASSIGN(vocabulary.unknown,
               ReadId(meta, "tokenizer.ggml.unknown_token_id", count, defaults.unknown));
  TRINE_ASSIGN(const int32_t turn_end, ReadId(meta, "tokenizer.ggml.eot_token_id", count, -1));
  vocabulary.MarkEnds(turn_end);
  TRINE_RETURN_IF_ERROR(ReadPieces(*tokens, to_bytes, &vocabulary));
  vocabulary.CollectEndTokens(turn_end);
  TRINE_ASSIGN(vocabulary.add_bos, meta.BoolOr("tokenizer.ggml.add_bos_token", defaults.add_bos));
  TRINE_ASSIGN(vocabulary.add_eos, meta.BoolOr("tokenizer.ggml.add_eos_token", false));
  TRINE_RETURN_IF_ERROR(vocabulary.CheckEnds(kBos, kEos));
  TRINE_ASSIGN(vocabulary.chat_template, meta.StringOr("tokenizer.chat_template", ""));
  return vocabulary;
}

}  // namespace trine
