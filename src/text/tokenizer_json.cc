// Byte-level BPE from Hugging Face's tokenizer.json and the files beside it. Errors name fields by
// their path from the root of the file.
#include <algorithm>

#include "src/core/json_fields.h"
#include "src/core/quote.h"
#include "src/text/bpe_tokenizer.h"
#include "src/text/byte_level.h"
#include "src/text/checkpoint_json.h"
#include "src/text/pretokenizer_json.h"
#include "src/text/text_ends_json.h"

namespace trine {
namespace {

class Reader {
 public:
  Reader(const CheckpointJson& files, const std::string& chat_template)
      : root_(files.tokenizer, ""),
        config_(ConfigOf(files)),
        generation_(GenerationOf(files)),
        chat_template_(chat_template) {}

  Result<std::unique_ptr<Tokenizer>> Read();

 private:
  struct Added {
    SpecialTokens::Token token;
    bool normalized;
  };

  Status ReadModelTokens(const JsonField& vocab);
  Status ReadAddedTokens(const JsonField& added);
  void MarkEnds();
  void MakeSpecial();
  Result<Added> ReadAddedToken(const JsonField& field);
  Status FillVocabulary();
  Status ReadMerges(BpeBuilder* builder);
  Status CheckModel();
  Status CheckUnknown(BpeBuilder* builder);
  Status MarkUnknown();
  Status ReadNormalizer(const JsonField& normalizer);
  Status ReadDecoder(const JsonField& decoder);
  Status ReadEnds();
  Status ReadGenerationEnds();

  bool IsFree(int64_t id) const { return texts_[static_cast<size_t>(id)] == nullptr; }

  const JsonField root_, config_, generation_;
  const std::string& chat_template_;  // chat_template.jinja
  TokenizerParts parts_;
  TokenIds ids_;                           // by their texts in root_
  std::vector<const std::string*> texts_;  // by id; nullptr: there is none
  std::vector<bool> in_model_;             // by id
  std::vector<Added> added_;
};

// The ids leave at most as many gaps as there are tokens: memory in proportion to the file.
Status Reader::ReadModelTokens(const JsonField& vocab) {
  if (!vocab.value().is_object() || vocab.value().empty()) {
    return vocab.Refuse("an object of tokens and ids is needed");
  }
  const size_t count = vocab.value().size() + root_["added_tokens"].value().size();
  texts_.assign(2 * std::min(count, kMaxEntries / 2) + 1000, nullptr);
  in_model_.assign(texts_.size(), false);
  for (const auto& [text, value] : vocab.value().items()) {
    const JsonField field(value, vocab.path() + "[" + ShownText(text) + "]");
    TRINE_ASSIGN(const int64_t id, field.Int());
    if (id < 0 || id >= std::ssize(texts_)) {
      return field.Refuse("ids from 0 to " + std::to_string(texts_.size() - 1) +
                          " are possible with " + std::to_string(count) + " tokens");
    }
    if (!IsFree(id)) return field.Refuse(Quote(*texts_[static_cast<size_t>(id)]) + " has that id");
    texts_[static_cast<size_t>(id)] = &text;
    in_model_[static_cast<size_t>(id)] = true;
    ids_.emplace(text, static_cast<int32_t>(id));
  }
  return {};
}

Result<Reader::Added> Reader::ReadAddedToken(const JsonField& field) {
  TRINE_ASSIGN(const int64_t id, field["id"].Int());
  TRINE_ASSIGN(std::string text, field["content"].String());
  TRINE_ASSIGN(const bool special, field["special"].Bool());
  TRINE_ASSIGN(const bool single_word, field["single_word"].Bool());
  TRINE_ASSIGN(const bool lstrip, field["lstrip"].Bool());
  TRINE_ASSIGN(const bool rstrip, field["rstrip"].Bool());
  TRINE_ASSIGN(const bool normalized, field["normalized"].Bool());
  if (id < 0 || id >= std::ssize(texts_)) {
    return field["id"].Refuse("ids below " + std::to_string(texts_.size()) +
                              " are possible with so many tokens");
  }
  const auto known = ids_.find(text);
  if (known != ids_.end() && (known->second != id || !in_model_[static_cast<size_t>(id)])) {
    return field["content"].Refuse("the token has id " + std::to_string(known->second) +
                                   " already; make them agree");
  }
  if (known == ids_.end() && !IsFree(id)) {
    return field["id"].Refuse("another token has that id; make them agree");
  }
  if (text.size() > kMaxSpecialBytes) {
    return field["content"].Refuse("it is " + std::to_string(text.size()) +
                                   " bytes long; at most " + std::to_string(kMaxSpecialBytes) +
                                   " are supported");
  }
  if (special && normalized && parts_.nfc != nullptr) {
    return field["normalized"].Refuse(
        "of a special token it must be false where there is a normalizer");
  }
  return Added{{std::move(text), static_cast<int32_t>(id), special, single_word, lstrip, rstrip},
               normalized};
}

Status Reader::ReadAddedTokens(const JsonField& added) {
  std::vector<JsonField> items;
  if (!added.is_null()) {
    TRINE_ASSIGN(items, added.Items());
  }
  for (const JsonField& item : items) {
    TRINE_ASSIGN(Added token, ReadAddedToken(item));
    const auto& text = item["content"].value().get_ref<const std::string&>();
    ids_.emplace(text, token.token.id);
    texts_[static_cast<size_t>(token.token.id)] = &text;
    added_.push_back(std::move(token));
  }
  while (!texts_.empty() && texts_.back() == nullptr) texts_.pop_back();
  return {};
}

// What text must never give is a control token, special or not, added or not.
void Reader::MarkEnds() {
  for (const int32_t id : {parts_.vocabulary.bos, parts_.vocabulary.eos}) {
    if (id < 0) continue;
    const auto same = [id](const Added& one) { return one.token.id == id; };
    const auto found = std::find_if(added_.begin(), added_.end(), same);
    if (found == added_.end()) {
      added_.push_back({{*texts_[static_cast<size_t>(id)], id, /*control=*/true}, false});
      continue;
    }
    found->token.control = true;
    found->normalized = found->normalized && parts_.nfc == nullptr;
  }
}

void Reader::MakeSpecial() {
  std::vector<SpecialTokens::Token> as_written;
  std::vector<SpecialTokens::Token> normalized;
  std::string buffer;
  for (const Added& one : added_) {
    (one.normalized ? normalized : as_written).push_back(one.token);
    if (!one.normalized || parts_.nfc == nullptr) continue;
    normalized.back().text = std::string(parts_.nfc->Apply(one.token.text, &buffer));
  }
  parts_.special = SpecialTokens(std::move(as_written));
  parts_.normalized_special = SpecialTokens(std::move(normalized));
}

// Types and bytes of the tokens.
Status Reader::FillVocabulary() {
  Vocabulary& vocabulary = parts_.vocabulary;
  vocabulary.types.assign(texts_.size(), TokenType::kUnused);
  std::vector<bool> is_added(texts_.size());
  for (size_t id = 0; id < texts_.size(); ++id) {
    if (texts_[id] != nullptr) vocabulary.types[id] = TokenType::kNormal;
  }
  for (const Added& one : added_) {
    const auto id = static_cast<size_t>(one.token.id);
    vocabulary.types[id] = one.token.control ? TokenType::kControl : TokenType::kUserDefined;
    is_added[id] = true;
  }
  BpeBuilder builder(Bpe::Unit::kByte);
  std::string bytes;
  for (size_t id = 0; id < texts_.size(); ++id) {
    const std::string_view text = texts_[id] == nullptr ? std::string_view() : *texts_[id];
    const bool mapped = in_model_[id] && ByteLevelToBytes(text, &bytes);
    vocabulary.pieces.Append(mapped && !is_added[id] ? bytes : text);
    const bool from_text = mapped && vocabulary.types[id] != TokenType::kControl;
    TRINE_RETURN_IF_ERROR(builder.AddToken(from_text ? bytes : std::string_view()));
  }
  TRINE_RETURN_IF_ERROR(ReadMerges(&builder));
  TRINE_RETURN_IF_ERROR(CheckUnknown(&builder));
  TRINE_ASSIGN(const bool ignore_merges, root_["model"]["ignore_merges"].BoolOr(false));
  parts_.bpe = builder.Finish(ignore_merges);
  return {};
}

// "A B" or ["A", "B"]. Of equal pairs the last one counts, so they are added from the end.
Status Reader::ReadMerges(BpeBuilder* builder) {
  const JsonField merges = root_["model"]["merges"];
  if (!merges.value().is_array() || merges.value().size() > kMaxEntries) {
    return merges.Refuse("an array of at most " + std::to_string(kMaxEntries) + " is needed");
  }
  const auto in_model = [this](const std::string& text) {
    const auto found = ids_.find(text);
    return found != ids_.end() && in_model_[static_cast<size_t>(found->second)];
  };
  const auto refuse = [&merges](size_t rank) {
    return merges[rank].Refuse("two tokens of model.vocab are needed that make a third one");
  };
  std::string left, right, left_bytes, right_bytes;
  for (size_t rank = merges.value().size(); rank-- > 0;) {
    const nlohmann::json& merge = merges.value()[rank];
    if (merge.is_string()) {
      const auto& line = merge.get_ref<const std::string&>();
      if (line.starts_with("#version")) continue;
      const size_t space = line.find(' ');
      if (space == std::string::npos) return refuse(rank);
      left = line.substr(0, space);
      right = line.substr(space + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      left = merge[0].get_ref<const std::string&>();
      right = merge[1].get_ref<const std::string&>();
    } else {
      return refuse(rank);
    }
    if (!in_model(left) || !in_model(right) || !in_model(left + right)) return refuse(rank);
    if (left.empty() || right.empty() || !ByteLevelToBytes(left, &left_bytes) ||
        !ByteLevelToBytes(right, &right_bytes)) {
      return refuse(rank);
    }
    builder->AddMerge(left_bytes, right_bytes, static_cast<int32_t>(rank));
  }
  return {};
}

Status Reader::CheckModel() {
  const JsonField model = root_["model"];
  const auto type = model["type"];
  // Files of old leave the type out.
  if (!type.is_null()) {
    TRINE_ASSIGN(const std::string name, type.String());
    if (name != "BPE") return type.Refuse("supported: BPE");
  }
  if (!model["dropout"].is_null()) return model["dropout"].Refuse("it must be null");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const JsonField field = model[key];
    if (field.is_null()) continue;
    TRINE_ASSIGN(const std::string text, field.String());
    if (!text.empty()) return field.Refuse("only byte-level BPE is supported, without it");
  }
  return {};
}

// What matters only where a byte has no token.
Status Reader::CheckUnknown(BpeBuilder* builder) {
  const JsonField model = root_["model"];
  TRINE_ASSIGN(const bool fallback, model["byte_fallback"].BoolOr(false));
  TRINE_ASSIGN(const bool fuse, model["fuse_unk"].BoolOr(false));
  const JsonField unknown = model["unk_token"];
  if (!unknown.is_null()) {
    TRINE_ASSIGN(const std::string text, unknown.String());
    const auto found = ids_.find(text);
    if (found == ids_.end()) return unknown.Refuse("there is no such token");
    parts_.vocabulary.unknown = found->second;
  }
  if (builder->HasAllBytes()) return {};
  if (fallback) {
    return model["byte_fallback"].Refuse("model.vocab must have a token for each of the 256 bytes");
  }
  builder->SetUnknown(parts_.vocabulary.unknown, fuse);
  return {};
}

Status Reader::ReadNormalizer(const JsonField& normalizer) {
  TRINE_ASSIGN(const std::string type, normalizer.Type());
  if (type == "Sequence") {
    TRINE_ASSIGN(const std::vector<JsonField> items, normalizer["normalizers"].Items());
    for (const JsonField& item : items) {
      TRINE_ASSIGN(const std::string inner, item.Type());
      if (inner != "NFC") return item["type"].Refuse("supported: NFC");
      parts_.nfc = std::make_unique<Nfc>();
    }
    return {};
  }
  if (type == "NFC") {
    parts_.nfc = std::make_unique<Nfc>();
  } else if (type != "null") {
    return normalizer["type"].Refuse("supported: NFC, Sequence, or no normalizer");
  }
  return {};
}

Status Reader::ReadDecoder(const JsonField& decoder) {
  TRINE_ASSIGN(const std::string type, decoder.Type());
  if (type == "ByteLevel") return {};
  const JsonField only = decoder["decoders"];
  if (type == "Sequence" && only.value().is_array() && only.value().size() == 1) {
    TRINE_ASSIGN(const std::string inner, only[0].Type());
    if (inner == "ByteLevel") return {};
  }
  return (decoder.is_null() ? decoder : decoder["type"]).Refuse("supported: ByteLevel");
}

Status Reader::ReadEnds() {
  TRINE_ASSIGN(const TextEnds ends, ReadTextEnds(root_["post_processor"], config_, ids_));
  Vocabulary& vocabulary = parts_.vocabulary;
  vocabulary.bos = ends.bos;
  vocabulary.eos = ends.eos;
  vocabulary.pad = ends.pad;
  vocabulary.add_bos = ends.add_bos;
  vocabulary.add_eos = ends.add_eos;
  return vocabulary.CheckEnds(config_["bos_token"].path(), config_["eos_token"].path());
}

// A token that ends a generation is a control token where it is an added one.
Status Reader::ReadGenerationEnds() {
  std::vector<int32_t>& ends = parts_.vocabulary.end_of_generation;
  TRINE_ASSIGN(ends, ReadEndIds(generation_, ids_));
  for (Added& one : added_) {
    if (std::find(ends.begin(), ends.end(), one.token.id) == ends.end()) continue;
    one.token.control = true;
    one.normalized = one.normalized && parts_.nfc == nullptr;
  }
  return {};
}

// Text gives no control token, so that one that text gives is of the unknown type, special or not.
Status Reader::MarkUnknown() {
  Vocabulary& vocabulary = parts_.vocabulary;
  const int32_t unknown = vocabulary.unknown;
  if (vocabulary.IsEnd(unknown)) {
    return root_["model"]["unk_token"].Refuse(
        "text would give it, as model.vocab lacks bytes, but it begins or ends texts");
  }
  vocabulary.types[static_cast<size_t>(unknown)] = TokenType::kUnknown;
  return {};
}

Result<std::unique_ptr<Tokenizer>> Reader::Read() {
  parts_.model = "gpt2";
  parts_.pre = "tokenizer.json";
  TRINE_RETURN_IF_ERROR(CheckModel());
  TRINE_RETURN_IF_ERROR(ReadNormalizer(root_["normalizer"]));
  TRINE_RETURN_IF_ERROR(ReadModelTokens(root_["model"]["vocab"]));
  TRINE_RETURN_IF_ERROR(ReadAddedTokens(root_["added_tokens"]));
  TRINE_RETURN_IF_ERROR(ReadEnds());
  MarkEnds();
  TRINE_RETURN_IF_ERROR(ReadGenerationEnds());
  MakeSpecial();
  TRINE_RETURN_IF_ERROR(FillVocabulary());
  parts_.vocabulary.CollectEndTokens(/*turn_end=*/-1);
  TRINE_ASSIGN(const JsonPreTokenizer pre, ReadPreTokenizer(root_["pre_tokenizer"]));
  if (pre.add_prefix_space) parts_.prefix = TokenizerParts::Prefix::kStretch;
  TRINE_ASSIGN(parts_.words, PreTokenizer::Create(pre.passes));
  TRINE_RETURN_IF_ERROR(ReadDecoder(root_["decoder"]));
  TRINE_ASSIGN(parts_.vocabulary.chat_template, ReadChatTemplate(config_, chat_template_));

  if (parts_.bpe->may_give_unknown()) TRINE_RETURN_IF_ERROR(MarkUnknown());
  return MakeTokenizer(std::move(parts_));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> ReadTokenizerJson(const HfTokenizerFiles& files) {
  TRINE_ASSIGN(const CheckpointJson json, ParseTokenizerFiles(files));
  return Reader(json, files.chat_template).Read();
}

}  // namespace trine
