#include "src/text/tokenizer.h"

#include <limits>

#include "src/text/bpe.h"
#include "src/text/byte_level.h"
#include "src/text/pretokenizer.h"
#include "src/text/utf8.h"
#include "src/text/vocabulary.h"

namespace trine {
namespace {

Status CheckText(std::string_view text) {
  constexpr int64_t kMaxBytes = std::numeric_limits<int32_t>::max();
  const auto size = static_cast<int64_t>(text.size());
  if (size > kMaxBytes) {
    return BadInput("text of " + std::to_string(size) + " bytes is longer than " +
                    std::to_string(kMaxBytes) + "; split it");
  }
  const int64_t valid = ValidUtf8Prefix(text);
  if (valid == size) return {};
  constexpr char kHex[] = "0123456789ABCDEF";
  const auto byte = static_cast<unsigned char>(text[static_cast<size_t>(valid)]);
  return BadInput("text is not valid UTF-8: byte " + std::to_string(valid) + " of " +
                  std::to_string(size) + " is 0x" + kHex[byte >> 4] + kHex[byte & 15] +
                  "; send it as UTF-8");
}

// Byte-level BPE behind a pre-tokeniser.
class Gpt2Tokenizer final : public Tokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> Create(const Metadata& meta);

  Gpt2Tokenizer(std::string pre, Vocabulary vocabulary, std::unique_ptr<PreTokenizer> splitter,
                std::unique_ptr<Bpe> bpe)
      : pre_(std::move(pre)),
        vocabulary_(std::move(vocabulary)),
        splitter_(std::move(splitter)),
        bpe_(std::move(bpe)) {}

  Result<std::vector<int32_t>> Encode(std::string_view text, Special special) const override;

  std::string_view Piece(int32_t id) const override {
    return Has(id) ? vocabulary_.pieces[id] : std::string_view();
  }
  TokenType Type(int32_t id) const override {
    return Has(id) ? vocabulary_.types[static_cast<size_t>(id)] : TokenType::kUnused;
  }
  int64_t size() const override { return vocabulary_.pieces.size(); }
  std::string_view model() const override { return "gpt2"; }
  std::string_view pre() const override { return pre_; }
  int32_t bos() const override { return vocabulary_.bos; }
  bool add_bos() const override { return vocabulary_.add_bos; }
  const std::vector<int32_t>& end_of_generation() const override {
    return vocabulary_.end_of_generation;
  }

 private:
  // Models pad their vocabulary, so an id behind the last token is no mistake: it has no text.
  bool Has(int32_t id) const { return id >= 0 && id < size(); }

  const std::string pre_;
  const Vocabulary vocabulary_;
  const std::unique_ptr<PreTokenizer> splitter_;
  const std::unique_ptr<Bpe> bpe_;
};

Result<std::unique_ptr<Tokenizer>> Gpt2Tokenizer::Create(const Metadata& meta) {
  TRINE_ASSIGN(std::string pre, meta.String("tokenizer.ggml.pre"));
  const PreRule* rule = FindPreRule(pre);
  if (rule == nullptr) {
    return BadInput("tokenizer.ggml.pre is '" + pre + "', which is none of " + PreRuleNames() +
                    "; a wrong one would spoil the output");
  }
  TRINE_ASSIGN(Vocabulary vocabulary, ReadVocabulary(meta, ByteLevelToBytes, rule->add_bos));
  TRINE_ASSIGN(const std::vector<std::string>* tokens, meta.Strings("tokenizer.ggml.tokens"));
  TRINE_ASSIGN(const std::vector<std::string>* merges, meta.Strings("tokenizer.ggml.merges"));
  if (merges == nullptr || merges->size() > kMaxEntries) {
    return BadInput("tokenizer.ggml.merges is " +
                    (merges == nullptr ? "missing" : std::to_string(merges->size()) + " long") +
                    "; model 'gpt2' needs it, with at most " + std::to_string(kMaxEntries) +
                    " entries");
  }
  std::vector<bool> mergeable;
  for (TokenType type : vocabulary.types) mergeable.push_back(type == TokenType::kNormal);
  TRINE_ASSIGN(auto bpe, Bpe::Create(*tokens, mergeable, *merges, rule->ignore_merges));
  TRINE_ASSIGN(auto splitter, PreTokenizer::Create(rule->passes));
  return std::unique_ptr<Tokenizer>(new Gpt2Tokenizer(std::move(pre), std::move(vocabulary),
                                                      std::move(splitter), std::move(bpe)));
}

Result<std::vector<int32_t>> Gpt2Tokenizer::Encode(std::string_view text, Special special) const {
  TRINE_RETURN_IF_ERROR(CheckText(text));
  const bool parse = special == Special::kParse;
  const auto matches = (parse ? vocabulary_.with_control : vocabulary_.always).Find(text);

  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 4);  // about four bytes a token in prose
  std::vector<int64_t> ends;
  Bpe::Scratch scratch;
  const auto encode_plain = [&](int64_t begin, int64_t end) -> Status {
    const std::string_view plain =
        text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    TRINE_RETURN_IF_ERROR(splitter_->Split(plain, &ends));
    size_t at = 0;
    for (int64_t piece_end : ends) {
      const size_t length = static_cast<size_t>(piece_end) - at;
      bpe_->Encode(plain.substr(at, length), &scratch, &ids);
      at += length;
    }
    return {};
  };

  int64_t done = 0;
  for (const SpecialTokens::Match& match : matches) {
    TRINE_RETURN_IF_ERROR(encode_plain(done, match.begin));
    ids.push_back(match.id);
    done = match.end;
  }
  TRINE_RETURN_IF_ERROR(encode_plain(done, static_cast<int64_t>(text.size())));
  return ids;
}

struct Model {
  std::string_view name;
  Result<std::unique_ptr<Tokenizer>> (*create)(const Metadata& meta);
};
constexpr Model kModels[] = {{"gpt2", Gpt2Tokenizer::Create}};

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::FromMetadata(const Metadata& meta) {
  TRINE_ASSIGN(const std::string name, meta.String("tokenizer.ggml.model"));
  std::string known;
  for (const Model& model : kModels) {
    if (model.name == name) return model.create(meta);
    known += std::string(known.empty() ? "" : ", ").append(model.name);
  }
  return BadInput("tokenizer.ggml.model is '" + name + "'; supported: " + known +
                  "; use a model with one of these");
}

}  // namespace trine
