// Byte-level BPE from GGUF's metadata (tokenizer.ggml.model = gpt2).
#include "src/core/quote.h"
#include "src/text/bpe_tokenizer.h"
#include "src/text/byte_level.h"

namespace trine {
namespace {

bool NormalToBytes(std::string_view text, TokenType type, std::string* bytes) {
  return type == TokenType::kNormal && ByteLevelToBytes(text, bytes);
}

// A merge line is "A B", cut at the first space behind A's first character (A may not be empty).
bool ParseMerge(std::string_view line, std::string* left, std::string* right) {
  const size_t space = line.find(' ', 1);
  return space != std::string_view::npos && space + 1 < line.size() &&
         ByteLevelToBytes(line.substr(0, space), left) &&
         ByteLevelToBytes(line.substr(space + 1), right);
}

Status AddMerges(const Metadata& meta, BpeBuilder* builder) {
  TRINE_ASSIGN(const std::vector<std::string>* merges, meta.Strings("tokenizer.ggml.merges"));
  if (merges == nullptr || merges->size() > kMaxEntries) {
    return BadInput("tokenizer.ggml.merges is " +
                    (merges == nullptr ? "missing" : std::to_string(merges->size()) + " long") +
                    "; model 'gpt2' needs it, with at most " + std::to_string(kMaxEntries) +
                    " entries");
  }
  std::string left;
  std::string right;
  for (size_t rank = 0; rank < merges->size(); ++rank) {
    if (!ParseMerge((*merges)[rank], &left, &right)) {
      return BadInput("merge " + std::to_string(rank) + " is " + Quote((*merges)[rank]) +
                      ", not two byte-level symbols with a space between; convert the file again");
    }
    builder->AddMerge(left, right, static_cast<int32_t>(rank));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> ReadByteLevelMetadata(const Metadata& meta) {
  TokenizerParts parts;
  parts.model = "gpt2";
  TRINE_ASSIGN(parts.pre, meta.String("tokenizer.ggml.pre"));
  const PreRule* rule = FindPreRule(parts.pre);
  if (rule == nullptr) {
    return BadInput("tokenizer.ggml.pre is " + Quote(parts.pre) + ", which is none of " +
                    PreRuleNames() + "; a wrong one would spoil the output");
  }
  VocabularyDefaults defaults;
  defaults.add_bos = rule->add_bos;
  TRINE_ASSIGN(parts.vocabulary, ReadVocabulary(meta, NormalToBytes, defaults));

  TRINE_ASSIGN(const std::vector<std::string>* tokens, meta.Strings("tokenizer.ggml.tokens"));
  BpeBuilder builder(Bpe::Unit::kByte);
  std::string bytes;
  for (size_t id = 0; id < tokens->size(); ++id) {
    if (!NormalToBytes((*tokens)[id], parts.vocabulary.types[id], &bytes)) bytes.clear();
    TRINE_RETURN_IF_ERROR(builder.AddToken(bytes));
  }
  TRINE_RETURN_IF_ERROR(AddMerges(meta, &builder));
  parts.bpe = builder.Finish(rule->ignore_merges);

  std::vector<SpecialTokens::Token> special;
  for (const TokenType type : {TokenType::kControl, TokenType::kUserDefined, TokenType::kUnknown}) {
    parts.vocabulary.AppendSpecial(type, &special);
  }
  parts.special = SpecialTokens(std::move(special));
  TRINE_ASSIGN(parts.words, PreTokenizer::Create(rule->passes));
  return MakeTokenizer(std::move(parts));
}

}  // namespace trine
