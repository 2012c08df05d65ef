// GGUF's metadata to the files of a Hugging Face checkpoint.
#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <unordered_set>

#include "src/core/quote.h"
#include "src/text/pretokenizer_json.h"
#include "src/text/sentence_piece.h"
#include "src/text/tokenizer.h"
#include "src/text/tokenizer_files.h"
#include "src/text/utf8.h"

namespace trine {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTokens = "tokenizer.ggml.tokens";

class Writer {
 public:
  // The metadata is what the tokenizer was made from.
  Writer(const Metadata& meta, const Tokenizer& tokenizer) : meta_(meta), tokenizer_(tokenizer) {}

  Result<HfTokenizerFiles> Write();

 private:
  Status ReadTokens();
  Status CheckEnds() const;
  void ChooseModelTokens();
  Result<Json> ByteLevelModel() const;
  Result<Json> SentencePieceModel() const;
  Status CheckSentencePiece(bool prefix) const;
  Result<Json> ScoredMerges() const;
  Json Vocab() const;
  Json AddedTokens() const;
  Json TemplateProcessing() const;
  Result<Json> TokenizerJson() const;
  Result<Json> ConfigJson() const;
  Result<Json> GenerationJson() const;

  int32_t size() const { return static_cast<int32_t>(texts_->size()); }
  const std::string& Text(int32_t id) const { return (*texts_)[static_cast<size_t>(id)]; }
  TokenType Type(int32_t id) const { return types_[static_cast<size_t>(id)]; }
  bool IsAdded(int32_t id) const {
    return Type(id) == TokenType::kControl || Type(id) == TokenType::kUserDefined ||
           Type(id) == TokenType::kUnknown;
  }
  bool IsNormal(std::string_view text) const {
    const auto found = ids_.find(text);
    return found != ids_.end() && Type(found->second) == TokenType::kNormal;
  }
  bool InModel(std::string_view text) const {
    const auto found = ids_.find(text);
    return found != ids_.end() && in_model_[static_cast<size_t>(found->second)];
  }

  const Metadata& meta_;
  const Tokenizer& tokenizer_;
  const std::vector<std::string>* texts_ = nullptr;    // by id
  std::vector<TokenType> types_;                       // by id, as the file has them
  std::unordered_map<std::string_view, int32_t> ids_;  // of the tokens in use, by text
  std::vector<bool> in_model_;                         // by id: in model.vocab
};

std::string Named(int32_t id) {
  return std::string(kTokens) + "[" + std::to_string(id) + "]";
}

Status Writer::ReadTokens() {
  TRINE_ASSIGN(texts_, meta_.Strings(kTokens));
  TRINE_ASSIGN(const std::vector<int64_t>* types, meta_.Ints("tokenizer.ggml.token_type"));
  types_.assign(texts_->size(), TokenType::kNormal);
  for (size_t id = 0; types != nullptr && id < types->size(); ++id) {
    types_[id] = static_cast<TokenType>((*types)[id]);
  }
  for (int32_t id = 0; id < size(); ++id) {
    if (Type(id) == TokenType::kUnused) continue;
    const auto [other, is_new] = ids_.emplace(Text(id), id);
    if (!is_new) {
      return BadInput(Named(other->second) + " and " + Named(id) + " are both " + Quote(Text(id)) +
                      "; tokenizer.json can hold one of them, mark the other one as unused");
    }
  }
  return {};
}

// Hugging Face's files name BOS and EOS, and what they name is cut out of a text.
Status Writer::CheckEnds() const {
  const std::pair<bool, int32_t> ends[] = {{tokenizer_.add_bos(), tokenizer_.bos()},
                                           {tokenizer_.add_eos(), tokenizer_.eos()}};
  for (const auto& [is_added_to_text, id] : ends) {
    if (!is_added_to_text || IsAdded(id)) continue;
    return BadInput(Named(id) + " begins or ends texts but is of type normal; mark " +
                    Quote(Text(id)) + " as control");
  }
  return {};
}

// Added tokens go into the model's vocabulary, too, where their ids do not follow from those of
// the model's own: these are counted on behind it.
void Writer::ChooseModelTokens() {
  in_model_.assign(texts_->size(), false);
  int32_t end = size();
  while (end > 0 && Type(end - 1) == TokenType::kUnused) --end;
  int32_t behind = end;
  while (behind > 0 && IsAdded(behind - 1)) --behind;
  const bool gaps =
      std::find(types_.begin(), types_.begin() + end, TokenType::kUnused) != types_.begin() + end;
  for (int32_t id = 0; id < (gaps ? end : behind); ++id) {
    in_model_[static_cast<size_t>(id)] = Type(id) != TokenType::kUnused;
  }
}

Json Writer::Vocab() const {
  // An ordered object looks for a key's double in all it has; ids_ says that there is none.
  Json vocab = Json::object();
  auto& entries = vocab.get_ref<Json::object_t&>();
  for (int32_t id = 0; id < size(); ++id) {
    if (in_model_[static_cast<size_t>(id)]) entries.emplace_back(Text(id), id);
  }
  return vocab;
}

Json Writer::AddedTokens() const {
  // User-defined tokens of SentencePiece are found in the text as it is normalised.
  const bool in_normalized = tokenizer_.model() == "llama";
  Json added = Json::array();
  for (int32_t id = 0; id < size(); ++id) {
    if (!IsAdded(id)) continue;
    const bool special = Type(id) != TokenType::kUserDefined;
    added.push_back({{"id", id},
                     {"content", Text(id)},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", in_normalized && !special},
                     {"special", special}});
  }
  return added;
}

// Null where a text gets no token in front of it and none behind.
Json Writer::TemplateProcessing() const {
  if (!tokenizer_.add_bos() && !tokenizer_.add_eos()) return nullptr;
  Json one = Json::array(), pair = Json::array(), special = Json::object();
  for (const int type_id : {0, 1}) {
    const auto append = [&](const Json& item) {
      pair.push_back(item);
      if (type_id == 0) one.push_back(item);
    };
    const auto append_token = [&](int32_t id) {
      append({{"SpecialToken", {{"id", Text(id)}, {"type_id", type_id}}}});
      special[Text(id)] = {{"id", Text(id)}, {"ids", {id}}, {"tokens", {Text(id)}}};
    };
    if (tokenizer_.add_bos()) append_token(tokenizer_.bos());
    append({{"Sequence", {{"id", type_id == 0 ? "A" : "B"}, {"type_id", type_id}}}});
    if (tokenizer_.add_eos()) append_token(tokenizer_.eos());
  }
  return {{"type", "TemplateProcessing"},
          {"single", std::move(one)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(special)}};
}

Json ModelJson(Json unknown, bool fuse_unknown, bool byte_fallback, bool ignore_merges, Json vocab,
               Json merges) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", std::move(unknown)},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", fuse_unknown},
          {"byte_fallback", byte_fallback},
          {"ignore_merges", ignore_merges},
          {"vocab", std::move(vocab)},
          {"merges", std::move(merges)}};
}

// The first of equal merges counts in GGUF, the last one in tokenizer.json.
Result<Json> Writer::ByteLevelModel() const {
  for (int32_t id = 0; id < size(); ++id) {
    if (Type(id) != TokenType::kByte) continue;
    return BadInput(Named(id) + " is of type byte, which model 'gpt2' has no use for; mark it as " +
                    "normal or unused");
  }
  TRINE_ASSIGN(const std::vector<std::string>* lines, meta_.Strings("tokenizer.ggml.merges"));
  std::unordered_set<std::string_view> seen;
  Json merges = Json::array();
  for (size_t rank = 0; rank < lines->size(); ++rank) {
    const std::string& line = (*lines)[rank];
    if (!seen.insert(line).second) continue;
    const size_t space = line.find(' ', 1);
    const std::string left = line.substr(0, space), right = line.substr(space + 1);
    for (const std::string& part : {left, right, left + right}) {
      if (InModel(part)) continue;
      return BadInput("merge " + std::to_string(rank) + " is " + Quote(line) + ", but " +
                      Quote(part) + " is no token of the model; tokenizer.json cannot hold that");
    }
    merges.push_back({left, right});
  }
  const bool ignore_merges = FindPreRule(tokenizer_.pre())->ignore_merges;
  return ModelJson(nullptr, /*fuse_unknown=*/false, /*byte_fallback=*/false, ignore_merges, Vocab(),
                   std::move(merges));
}

// What SentencePiece has and tokenizer.json cannot express.
Status Writer::CheckSentencePiece(bool prefix) const {
  const auto is_normal = [this](std::string_view text) { return IsNormal(text); };
  for (int32_t id = 0; id < size(); ++id) {
    if (Type(id) == TokenType::kUserDefined && prefix) {
      return BadInput(Named(id) +
                      " is user-defined, and add_space_prefix is true: tokenizer.json " +
                      "would put a space behind " + Quote(Text(id)) + "; mark it as control");
    }
    if (Type(id) != TokenType::kNormal) continue;
    const std::string& text = Text(id);
    if (text.find(' ') != std::string::npos) {
      return BadInput(Named(id) + " is " + Quote(text) +
                      ", with a space where U+2581 should be; convert the file again");
    }
    const std::string_view lacking = LackingCharacter(text, is_normal);
    if (lacking.empty()) continue;
    return BadInput(Named(id) + " is " + Quote(text) + ", but its character " + Quote(lacking) +
                    " is no normal token; tokenizer.json needs it");
  }
  return {};
}

// By falling score. Equal scores have no counterpart: each merge has a rank of its own.
Result<Json> Writer::ScoredMerges() const {
  TRINE_ASSIGN(const std::vector<double>* scores, meta_.Floats("tokenizer.ggml.scores"));
  const auto is_normal = [this](std::string_view text) { return IsNormal(text); };
  struct Product {
    double score;
    int32_t id;
    std::vector<Merge> merges;
  };
  std::vector<Product> products;
  for (int32_t id = 0; id < size(); ++id) {
    if (Type(id) != TokenType::kNormal) continue;
    std::vector<Merge> merges = MergesOfToken(Text(id), is_normal);
    if (merges.empty()) continue;
    products.push_back({(*scores)[static_cast<size_t>(id)], id, std::move(merges)});
  }
  std::stable_sort(products.begin(), products.end(),
                   [](const Product& a, const Product& b) { return a.score > b.score; });
  Json merges = Json::array();
  for (size_t i = 0; i < products.size(); ++i) {
    if (i > 0 && products[i - 1].score == products[i].score) {
      return BadInput(Named(products[i - 1].id) + " and " + Named(products[i].id) +
                      " have the same score, " + Json(products[i].score).dump() +
                      "; tokenizer.json ranks every merge, give them scores of their own");
    }
    for (const Merge& merge : products[i].merges) merges.push_back({merge.left, merge.right});
  }
  return merges;
}

Result<Json> Writer::SentencePieceModel() const {
  TRINE_RETURN_IF_ERROR(CheckSentencePiece(tokenizer_.adds_space()));
  TRINE_ASSIGN(Json merges, ScoredMerges());
  TRINE_ASSIGN(const int64_t unknown, meta_.IntOr("tokenizer.ggml.unknown_token_id", 0));
  const bool has_bytes = std::find(types_.begin(), types_.end(), TokenType::kByte) != types_.end();
  return ModelJson(Text(static_cast<int32_t>(unknown)), /*fuse_unknown=*/true, has_bytes,
                   /*ignore_merges=*/false, Vocab(), std::move(merges));
}

Json ReplaceJson(std::string_view what, std::string_view with) {
  return {{"type", "Replace"}, {"pattern", {{"String", what}}}, {"content", with}};
}

Json SequenceJson(const char* items_name, Json items) {
  return {{"type", "Sequence"}, {items_name, std::move(items)}};
}

Result<Json> Writer::TokenizerJson() const {
  Json root = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  root["added_tokens"] = AddedTokens();
  if (tokenizer_.model() == "llama") {
    Json normalizers = Json::array(), decoders = Json::array();
    if (tokenizer_.adds_space()) {
      normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpaceMark}});
    }
    normalizers.push_back(ReplaceJson(" ", kSpaceMark));
    decoders = {ReplaceJson(kSpaceMark, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
    if (tokenizer_.adds_space()) {
      decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    root["normalizer"] = SequenceJson("normalizers", std::move(normalizers));
    root["pre_tokenizer"] = nullptr;
    root["post_processor"] = TemplateProcessing();
    root["decoder"] = SequenceJson("decoders", std::move(decoders));
    TRINE_ASSIGN(root["model"], SentencePieceModel());
    return root;
  }
  root["normalizer"] = nullptr;
  root["pre_tokenizer"] = WritePreTokenizer(FindPreRule(tokenizer_.pre())->passes);
  root["post_processor"] = TemplateProcessing();
  root["decoder"] = {{"type", "ByteLevel"},
                     {"add_prefix_space", false},
                     {"trim_offsets", false},
                     {"use_regex", false}};
  TRINE_ASSIGN(root["model"], ByteLevelModel());
  return root;
}

// A token goes in by name only where it is an added one: transformers adds those it finds here.
Result<Json> Writer::ConfigJson() const {
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"clean_up_tokenization_spaces", false}};
  TRINE_ASSIGN(const int64_t unknown, meta_.IntOr("tokenizer.ggml.unknown_token_id",
                                                  tokenizer_.model() == "llama" ? 0 : -1));
  const std::pair<const char*, int32_t> named[] = {{"bos_token", tokenizer_.bos()},
                                                   {"eos_token", tokenizer_.eos()},
                                                   {"pad_token", tokenizer_.pad()},
                                                   {"unk_token", static_cast<int32_t>(unknown)}};
  for (const auto& [name, id] : named) {
    if (id >= 0 && IsAdded(id)) config[name] = Text(id);
  }
  for (const char* flag : {"add_bos_token", "add_eos_token"}) {
    const std::string key = std::string("tokenizer.ggml.") + flag;
    if (meta_.Find(key) == nullptr) continue;
    TRINE_ASSIGN(config[flag], meta_.BoolOr(key, false));
  }
  TRINE_ASSIGN(const std::string architecture, meta_.StringOr("general.architecture", ""));
  TRINE_ASSIGN(const int64_t context, meta_.IntOr(architecture + ".context_length", 0));
  if (context > 0) config["model_max_length"] = context;
  const std::string chat(tokenizer_.chat_template());
  if (ValidUtf8Prefix(chat) != static_cast<int64_t>(chat.size())) {
    return BadInput("tokenizer.chat_template is not valid UTF-8; convert the file again");
  }
  if (!chat.empty()) config["chat_template"] = chat;
  return config;
}

// GGUF keeps these as f32: the shortest number that is the same one.
Json ShortestFloat(double value) {
  char digits[32];
  const auto end = std::to_chars(std::begin(digits), std::end(digits), static_cast<float>(value));
  double shortest = 0;
  std::from_chars(digits, end.ptr, shortest);
  return shortest;
}

Result<Json> Writer::GenerationJson() const {
  Json generation = Json::object();
  if (tokenizer_.bos() >= 0) generation["bos_token_id"] = tokenizer_.bos();
  if (tokenizer_.pad() >= 0) generation["pad_token_id"] = tokenizer_.pad();
  std::vector<int32_t> ends = tokenizer_.end_of_generation();
  const auto eos = std::find(ends.begin(), ends.end(), tokenizer_.eos());
  if (eos != ends.end()) std::rotate(ends.begin(), eos, eos + 1);
  if (ends.size() == 1) generation["eos_token_id"] = ends[0];
  if (ends.size() > 1) generation["eos_token_id"] = ends;

  constexpr const char* kTemperature = "general.sampling.temp";
  TRINE_ASSIGN(const double temperature, meta_.FloatOr(kTemperature, 1));
  if (meta_.Find(kTemperature) != nullptr) {
    generation["do_sample"] = temperature > 0;
    if (temperature > 0) generation["temperature"] = ShortestFloat(temperature);
  }
  if (meta_.Find("general.sampling.top_p") != nullptr) {
    TRINE_ASSIGN(const double top_p, meta_.Float("general.sampling.top_p"));
    generation["top_p"] = ShortestFloat(top_p);
  }
  if (meta_.Find("general.sampling.top_k") != nullptr) {
    TRINE_ASSIGN(generation["top_k"], meta_.Int("general.sampling.top_k"));
  }
  return generation;
}

Result<HfTokenizerFiles> Writer::Write() {
  TRINE_RETURN_IF_ERROR(ReadTokens());
  TRINE_RETURN_IF_ERROR(CheckEnds());
  ChooseModelTokens();
  TRINE_ASSIGN(const Json tokenizer, TokenizerJson());
  TRINE_ASSIGN(const Json config, ConfigJson());
  TRINE_ASSIGN(const Json generation, GenerationJson());
  HfTokenizerFiles files;
  files.tokenizer = tokenizer.dump() + "\n";
  files.tokenizer_config = config.dump(2) + "\n";
  files.generation_config = generation.dump(2) + "\n";
  return files;
}

}  // namespace

Result<HfTokenizerFiles> ToHuggingFace(const Metadata& meta) {
  TRINE_ASSIGN(const std::unique_ptr<Tokenizer> tokenizer, Tokenizer::FromMetadata(meta));
  return Writer(meta, *tokenizer).Write();
}

}  // namespace trine
