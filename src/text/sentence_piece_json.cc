#include "src/text/sentence_piece_json.h"

#include <string>
#include <unordered_set>

#include "src/core/quote.h"
#include "src/text/sentence_piece.h"

namespace trine {
namespace {

class Reader {
 public:
  Reader(const JsonField& root, const TokenIds& ids, std::vector<TokenType>* types)
      : root_(root), model_(root["model"]), ids_(ids), types_(*types) {}

  Result<SentencePieceRules> Read();

 private:
  Status CheckModel() const;
  Status MarkTypes();
  Status ReadSpaceRules();
  Status ReadNormalizer(const JsonField& normalizer);
  Status ReadMetaspace(const JsonField& pre);
  Status CheckAddedTokens() const;
  Status CheckTokens() const;
  Status ReadMerges();
  Status EndBlock(std::string_view product, size_t merges, size_t rank);
  Result<Merge> ReadMerge(size_t rank) const;

  TokenType& Type(int32_t id) const { return types_[static_cast<size_t>(id)]; }
  bool IsNormal(std::string_view text) const {
    const auto found = ids_.find(text);
    return found != ids_.end() && Type(found->second) == TokenType::kNormal;
  }
  std::vector<Merge> MergesOf(std::string_view text) const {
    return MergesOfToken(text, [this](std::string_view part) { return IsNormal(part); });
  }

  const JsonField root_, model_;
  const TokenIds& ids_;
  std::vector<TokenType>& types_;
  SentencePieceRules rules_;
  bool replaces_spaces_ = false;
  int32_t blocks_ = 0;  // tokens that merges make, so far
};

Status Reader::CheckModel() const {
  const JsonField type = model_["type"];
  if (!type.is_null()) {
    TRINE_ASSIGN(const std::string name, type.String());
    if (name != "BPE") return type.Refuse("supported: BPE");
  }
  if (!model_["dropout"].is_null()) return model_["dropout"].Refuse("it must be null");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const JsonField field = model_[key];
    if (field.is_null()) continue;
    TRINE_ASSIGN(const std::string text, field.String());
    if (!text.empty()) return field.Refuse("SentencePiece's BPE has none");
  }
  TRINE_ASSIGN(const bool ignore, model_["ignore_merges"].BoolOr(false));
  if (ignore) return model_["ignore_merges"].Refuse("SentencePiece's BPE always merges");
  TRINE_ASSIGN(const bool fallback, model_["byte_fallback"].BoolOr(false));
  TRINE_ASSIGN(const bool fuse, model_["fuse_unk"].BoolOr(false));
  if (!fallback && !fuse) {
    return model_["fuse_unk"].Refuse("without byte_fallback it must be true");
  }
  return {};
}

// Byte tokens, and the unknown one.
Status Reader::MarkTypes() {
  TRINE_ASSIGN(const bool fallback, model_["byte_fallback"].BoolOr(false));
  for (const auto& [text, id] : ids_) {
    if (fallback && ByteOfToken(text) >= 0) Type(id) = TokenType::kByte;
  }
  TRINE_ASSIGN(const std::string unknown, model_["unk_token"].String());
  const auto found = ids_.find(unknown);
  if (found == ids_.end()) return model_["unk_token"].Refuse("there is no such token");
  Type(found->second) = TokenType::kUnknown;
  return {};
}

Status Reader::ReadNormalizer(const JsonField& normalizer) {
  TRINE_ASSIGN(const std::string type, normalizer.Type());
  if (replaces_spaces_) return normalizer.Refuse("nothing may follow Replace");
  if (type == "Prepend") {
    TRINE_ASSIGN(const std::string text, normalizer["prepend"].String());
    if (text != kSpaceMark) return normalizer["prepend"].Refuse("it must be U+2581");
    rules_.add_space_prefix = true;
    return {};
  }
  if (type == "Replace") {
    TRINE_ASSIGN(const std::string what, normalizer["pattern"]["String"].String());
    TRINE_ASSIGN(const std::string with, normalizer["content"].String());
    if (what != " " || with != kSpaceMark) {
      return normalizer["content"].Refuse("a Replace of spaces by U+2581 is supported");
    }
    replaces_spaces_ = true;
    return {};
  }
  if (type != "Sequence" || normalizer.path() != "normalizer") {
    return normalizer["type"].Refuse("supported: Prepend, Replace and one Sequence of these");
  }
  TRINE_ASSIGN(const std::vector<JsonField> items, normalizer["normalizers"].Items());
  for (const JsonField& item : items) TRINE_RETURN_IF_ERROR(ReadNormalizer(item));
  return {};
}

Status Reader::ReadMetaspace(const JsonField& pre) {
  TRINE_ASSIGN(const std::string mark, pre["replacement"].String());
  if (mark != kSpaceMark) return pre["replacement"].Refuse("it must be U+2581");
  TRINE_ASSIGN(const bool split, pre["split"].BoolOr(true));
  if (split) return pre["split"].Refuse("it must be false: SentencePiece merges across words");
  const JsonField scheme = pre["prepend_scheme"];
  TRINE_ASSIGN(const std::string name, scheme.String());
  if (name != "always" && name != "never") {
    return scheme.Refuse("supported: always (behind control tokens, too), never");
  }
  rules_.add_space_prefix = name == "always";
  return {};
}

Status Reader::ReadSpaceRules() {
  const JsonField normalizer = root_["normalizer"], pre = root_["pre_tokenizer"];
  if (pre.is_null()) {
    TRINE_RETURN_IF_ERROR(ReadNormalizer(normalizer));
    if (!replaces_spaces_) return normalizer.Refuse("it needs a Replace of spaces by U+2581");
    return {};
  }
  if (!normalizer.is_null()) return normalizer.Refuse("it must be null where there is Metaspace");
  return ReadMetaspace(pre);
}

// Control tokens are found in the text as it comes, user-defined ones in what it becomes.
Status Reader::CheckAddedTokens() const {
  if (root_["added_tokens"].is_null()) return {};
  TRINE_ASSIGN(const std::vector<JsonField> items, root_["added_tokens"].Items());
  for (const JsonField& item : items) {
    TRINE_ASSIGN(const bool special, item["special"].Bool());
    TRINE_ASSIGN(const bool normalized, item["normalized"].Bool());
    TRINE_ASSIGN(const std::string text, item["content"].String());
    if (!special && rules_.add_space_prefix) {
      return item["special"].Refuse("it must be true where a space is put in front of text");
    }
    if (special && normalized && !root_["normalizer"].is_null()) {
      return item["normalized"].Refuse("of a special token it must be false");
    }
    const bool has_space =
        text.find(' ') != std::string::npos || text.find(kSpaceMark) != std::string::npos;
    if (!special && !normalized && has_space) {
      return item["normalized"].Refuse("of a token with a space it must be true");
    }
  }
  return {};
}

Status Reader::CheckTokens() const {
  const auto is_normal = [this](std::string_view text) { return IsNormal(text); };
  for (const auto& [text, id] : ids_) {
    if (Type(id) != TokenType::kNormal) continue;
    if (text.size() > kMaxPieceBytes) {
      return BadInput("model.vocab[" + ShownText(std::string(text)) + "] is " +
                      std::to_string(text.size()) + " bytes long; at most " +
                      std::to_string(kMaxPieceBytes) + " are supported");
    }
    const std::string_view lacking = LackingCharacter(text, is_normal);
    if (lacking.empty()) continue;
    return BadInput("model.vocab has " + Quote(text) + ", but not its character " + Quote(lacking) +
                    " as a token; SentencePiece would merge that");
  }
  return {};
}

// The halves of a merge, as parts of the document.
Result<Merge> Reader::ReadMerge(size_t rank) const {
  const JsonField field = model_["merges"][rank];
  const nlohmann::json& merge = field.value();
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return Merge{merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
  }
  if (merge.is_string()) {
    const std::string_view line = merge.get_ref<const std::string&>();
    const size_t space = line.find(' ');
    if (space != std::string_view::npos)
      return Merge{line.substr(0, space), line.substr(space + 1)};
  }
  return field.Refuse("two tokens of model.vocab are needed that make a third one");
}

// All merges that make `product` are read, the last one in front of `rank`.
Status Reader::EndBlock(std::string_view product, size_t merges, size_t rank) {
  const size_t all = MergesOf(product).size();
  double& score = rules_.scores[static_cast<size_t>(ids_.find(product)->second)];
  if (merges == all && score == 0) {
    score = -++blocks_;
    return {};
  }
  return model_["merges"][rank - 1].Refuse(Quote(product) + " must be made by all " +
                                           std::to_string(all) +
                                           " pairs of tokens in a row, as SentencePiece makes it");
}

// A token's score is the place of its merges in the list. What makes an added token never counts:
// that is cut out of the text before.
Status Reader::ReadMerges() {
  const JsonField list = model_["merges"];
  if (!list.value().is_array()) return list.Refuse("an array is needed");
  std::string product;
  std::unordered_set<size_t> left_sizes;  // of the merges that make the product, so far
  size_t end = 0;                         // behind the last of them
  for (size_t rank = 0; rank < list.value().size(); ++rank) {
    TRINE_ASSIGN(const Merge merge, ReadMerge(rank));
    std::string made = std::string(merge.left).append(merge.right);
    const auto found = ids_.find(made);
    const bool is_added = found != ids_.end() && Type(found->second) != TokenType::kNormal &&
                          Type(found->second) != TokenType::kByte;
    if (is_added) continue;
    if (!IsNormal(merge.left) || !IsNormal(merge.right) || !IsNormal(made)) {
      return list[rank].Refuse("two normal tokens of model.vocab are needed that make a third one");
    }
    if (made != product) {
      if (!product.empty()) TRINE_RETURN_IF_ERROR(EndBlock(product, left_sizes.size(), end));
      product = std::move(made);
      left_sizes.clear();
    }
    left_sizes.insert(merge.left.size());
    end = rank + 1;
  }
  if (!product.empty()) TRINE_RETURN_IF_ERROR(EndBlock(product, left_sizes.size(), end));
  for (const auto& [text, id] : ids_) {
    double& score = rules_.scores[static_cast<size_t>(id)];
    if (Type(id) != TokenType::kNormal || score != 0) continue;
    score = -(blocks_ + 1);
    const std::vector<Merge> merges = MergesOf(text);
    if (merges.empty()) continue;
    return list.Refuse("it lacks " + Quote(merges[0].left) + " and " + Quote(merges[0].right) +
                       ", which SentencePiece would merge to a token");
  }
  return {};
}

Result<SentencePieceRules> Reader::Read() {
  rules_.scores.assign(types_.size(), 0);
  TRINE_RETURN_IF_ERROR(CheckModel());
  TRINE_RETURN_IF_ERROR(MarkTypes());
  TRINE_RETURN_IF_ERROR(ReadSpaceRules());
  TRINE_RETURN_IF_ERROR(CheckAddedTokens());
  TRINE_RETURN_IF_ERROR(CheckTokens());
  TRINE_RETURN_IF_ERROR(ReadMerges());
  return std::move(rules_);
}

}  // namespace

bool IsSentencePieceJson(const JsonField& root) {
  const JsonField pre = root["pre_tokenizer"];
  return pre.is_null() || pre["type"].value() == "Metaspace";
}

Result<SentencePieceRules> ReadSentencePieceJson(const JsonField& root, const TokenIds& ids,
                                                 std::vector<TokenType>* types) {
  return Reader(root, ids, types).Read();
}

}  // namespace trine
