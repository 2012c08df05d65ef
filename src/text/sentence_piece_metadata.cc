// SentencePiece's BPE from GGUF's metadata (tokenizer.ggml.model = llama).
#include <algorithm>
#include <cmath>

#include "src/core/quote.h"
#include "src/text/bpe_tokenizer.h"
#include "src/text/sentence_piece.h"

namespace trine {
namespace {

constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kScores = "tokenizer.ggml.scores";

bool ToBytes(std::string_view text, TokenType type, std::string* bytes) {
  if (type == TokenType::kControl || type == TokenType::kUnknown) return false;
  if (type == TokenType::kByte) {
    const int byte = ByteOfToken(text);
    if (byte >= 0) bytes->assign(1, static_cast<char>(byte));
    return byte >= 0;
  }
  bytes->clear();
  for (size_t done = 0; done < text.size();) {
    const size_t mark = std::min(text.find(kSpaceMark, done), text.size());
    bytes->append(text.substr(done, mark - done));
    if (mark < text.size()) bytes->push_back(' ');
    done = mark + kSpaceMark.size();
  }
  return true;
}

// Refuses, by name, the keys that would change the text before it is split.
Status CheckNormalization(const Metadata& meta) {
  TRINE_ASSIGN(const bool squeeze, meta.BoolOr("tokenizer.ggml.remove_extra_whitespaces", false));
  if (squeeze) {
    return BadInput(
        "tokenizer.ggml.remove_extra_whitespaces is true, which is not supported with model "
        "'llama'; use a model without it");
  }
  if (meta.Find("tokenizer.ggml.precompiled_charsmap") != nullptr) {
    return BadInput(
        "tokenizer.ggml.precompiled_charsmap (a normaliser) is not supported with model 'llama'; "
        "use a model without it");
  }
  return {};
}

// The rank of a token's merge: 0 for the highest score, the same for equal ones.
Result<std::vector<int32_t>> RanksOf(const Metadata& meta, size_t count) {
  TRINE_ASSIGN(const std::vector<double>* scores, meta.Floats(kScores));
  if (scores == nullptr || scores->size() != count) {
    return BadInput(
        std::string(kScores) + " is " +
        (scores == nullptr ? "missing" : std::to_string(scores->size()) + " entries long") +
        "; model 'llama' needs one for each of the " + std::to_string(count) + " tokens");
  }
  for (size_t id = 0; id < count; ++id) {
    if (std::isnan((*scores)[id])) {
      return BadInput(std::string(kScores) + "[" + std::to_string(id) +
                      "] is not a number; convert the file again");
    }
  }
  std::vector<double> sorted(*scores);
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::vector<int32_t> ranks;
  for (const double score : *scores) {
    const auto at = std::lower_bound(sorted.begin(), sorted.end(), score, std::greater<>());
    ranks.push_back(static_cast<int32_t>(at - sorted.begin()));
  }
  return ranks;
}

Status AddTokens(const std::vector<std::string>& texts, const Vocabulary& vocabulary,
                 BpeBuilder* builder, CharacterJoins* joins) {
  int64_t bytes = 0;
  for (int32_t id = 0; id < static_cast<int32_t>(vocabulary.size()); ++id) {
    const TokenType type = vocabulary.types[static_cast<size_t>(id)];
    const std::string_view piece = vocabulary.pieces[id];
    const std::string name = std::string(kTokens) + "[" + std::to_string(id) + "]";
    const bool normal = type == TokenType::kNormal;
    if (normal && piece.size() > kMaxPieceBytes) {
      return BadInput(name + " is " + std::to_string(piece.size()) + " bytes long; at most " +
                      std::to_string(kMaxPieceBytes) + " are supported");
    }
    TRINE_RETURN_IF_ERROR(builder->AddToken(normal ? piece : std::string_view()));
    if (normal) joins->AddToken(piece);
    if (type != TokenType::kByte) continue;
    const int byte = ByteOfToken(texts[static_cast<size_t>(id)]);
    if (byte < 0) {
      return BadInput(name + " is a byte token " + Quote(texts[static_cast<size_t>(id)]) +
                      ", not of the form <0xHH>; convert the file again");
    }
    builder->SetByteToken(static_cast<unsigned char>(byte), id);
    ++bytes;
  }
  if (bytes != 0 && !builder->HasAllBytes()) {
    return BadInput(std::string(kTokens) + " has " + std::to_string(bytes) +
                    " byte tokens, but not one for each of the 256 bytes; convert the file again");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> ReadSentencePieceMetadata(const Metadata& meta) {
  TokenizerParts parts;
  parts.model = "llama";
  parts.spaces_are_marks = true;
  TRINE_RETURN_IF_ERROR(CheckNormalization(meta));
  if (meta.Find("tokenizer.ggml.token_type") == nullptr) {
    return BadInput(
        "tokenizer.ggml.token_type is missing; model 'llama' needs it to tell byte tokens, convert "
        "the file again");
  }
  const VocabularyDefaults defaults = {/*bos=*/1, /*eos=*/2, /*unknown=*/0, /*add_bos=*/true};
  TRINE_ASSIGN(parts.vocabulary, ReadVocabulary(meta, ToBytes, defaults));
  TRINE_ASSIGN(const bool prefix, meta.BoolOr("tokenizer.ggml.add_space_prefix", true));
  if (prefix) parts.prefix = TokenizerParts::Prefix::kText;

  const Vocabulary& vocabulary = parts.vocabulary;
  TRINE_ASSIGN(const std::vector<std::string>* texts, meta.Strings(kTokens));
  TRINE_ASSIGN(const std::vector<int32_t> ranks, RanksOf(meta, texts->size()));
  BpeBuilder builder(Bpe::Unit::kCharacter);
  auto joins = std::make_unique<CharacterJoins>();
  TRINE_RETURN_IF_ERROR(AddTokens(*texts, vocabulary, &builder, joins.get()));
  builder.AddMergesOfTokens(ranks);
  if (!builder.HasAllBytes()) {
    if (vocabulary.unknown >= 0 && vocabulary.IsEnd(vocabulary.unknown)) {
      return BadInput("tokenizer.ggml.unknown_token_id is " + std::to_string(vocabulary.unknown) +
                      ", which begins or ends texts; text would give it, as bytes lack tokens");
    }
    builder.SetUnknown(vocabulary.unknown, /*fuse=*/true);
  }
  parts.bpe = builder.Finish(/*ignore_merges=*/false);
  parts.joins = std::move(joins);

  std::vector<SpecialTokens::Token> special;
  vocabulary.AppendSpecial(TokenType::kControl, &special);
  vocabulary.AppendSpecial(TokenType::kUnknown, &special);
  parts.special = SpecialTokens(std::move(special));
  std::vector<SpecialTokens::Token> user_defined;
  vocabulary.AppendSpecial(TokenType::kUserDefined, &user_defined);
  parts.normalized_special = SpecialTokens(std::move(user_defined));
  return MakeTokenizer(std::move(parts));
}

}  // namespace trine
