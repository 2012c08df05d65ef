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

// An id that another key names; -1 if the key is absent.
Result<int32_t> ReadId(const Metadata& meta, std::string_view key, size_t count) {
  if (meta.Find(key) == nullptr) return int32_t{-1};
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
    const bool normal = vocabulary->types[id] == TokenType::kNormal;
    vocabulary->pieces.Append(normal && to_bytes(tokens[id], &bytes) ? bytes : tokens[id]);
  }
  return {};
}

void CollectSpecialTokens(const std::vector<std::string>& tokens, Vocabulary* vocabulary) {
  std::vector<SpecialTokens::Token> always;
  std::vector<SpecialTokens::Token> with_control;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const TokenType type = vocabulary->types[id];
    const bool control = type == TokenType::kControl;
    if (!control && type != TokenType::kUserDefined && type != TokenType::kUnknown) continue;
    with_control.push_back({tokens[id], static_cast<int32_t>(id)});
    if (!control) always.push_back(with_control.back());
  }
  vocabulary->always = SpecialTokens(std::move(always));
  vocabulary->with_control = SpecialTokens(std::move(with_control));
}

Status CollectEndTokens(const Metadata& meta, const std::vector<std::string>& tokens,
                        Vocabulary* vocabulary) {
  std::vector<int32_t>& ends = vocabulary->end_of_generation;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    TRINE_ASSIGN(const int32_t id, ReadId(meta, key, tokens.size()));
    if (id >= 0) ends.push_back(id);
  }
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (vocabulary->types[id] != TokenType::kControl) continue;
    if (std::count(std::begin(kEndMarkers), std::end(kEndMarkers), tokens[id]) == 0) continue;
    ends.push_back(static_cast<int32_t>(id));
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return {};
}

}  // namespace

Result<Vocabulary> ReadVocabulary(const Metadata& meta, TextToBytes to_bytes, bool add_bos) {
  TRINE_ASSIGN(const std::vector<std::string>* tokens, meta.Strings(kTokens));
  if (tokens == nullptr || tokens->empty() || tokens->size() > kMaxEntries) {
    return BadInput(
        std::string(kTokens) + " is " +
        (tokens == nullptr ? "missing" : std::to_string(tokens->size()) + " entries long") +
        "; a model file needs 1 to " + std::to_string(kMaxEntries) + " tokens");
  }
  Vocabulary vocabulary;
  TRINE_RETURN_IF_ERROR(ReadTypes(meta, tokens->size(), &vocabulary.types));
  TRINE_RETURN_IF_ERROR(ReadPieces(*tokens, to_bytes, &vocabulary));
  CollectSpecialTokens(*tokens, &vocabulary);
  TRINE_RETURN_IF_ERROR(CollectEndTokens(meta, *tokens, &vocabulary));

  constexpr std::string_view kBos = "tokenizer.ggml.bos_token_id";
  TRINE_ASSIGN(vocabulary.bos, ReadId(meta, kBos, tokens->size()));
  TRINE_ASSIGN(vocabulary.add_bos, meta.BoolOr("tokenizer.ggml.add_bos_token", add_bos));
  if (vocabulary.add_bos && vocabulary.bos < 0) {
    return BadInput("this tokenizer begins prompts with a BOS token, but " + std::string(kBos) +
                    " is missing; add it or set tokenizer.ggml.add_bos_token to false");
  }
  return vocabulary;
}

}  // namespace trine
