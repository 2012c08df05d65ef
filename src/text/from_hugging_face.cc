// The files of a Hugging Face checkpoint to GGUF's metadata.
#include <algorithm>
#include <memory>
#include <unordered_set>

#include "src/core/quote.h"
#include "src/text/bpe_tokenizer.h"
#include "src/text/checkpoint_json.h"
#include "src/text/pretokenizer_json.h"
#include "src/text/sentence_piece_json.h"
#include "src/text/text_ends_json.h"
#include "src/text/tokenizer_files.h"

namespace trine {
namespace {

class Importer {
 public:
  // The JSON is that of the files.
  Importer(const HfTokenizerFiles& files, const CheckpointJson& json, Metadata* meta)
      : files_(files),
        root_(json.tokenizer, ""),
        config_(ConfigOf(json)),
        generation_(GenerationOf(json)),
        meta_(meta) {}

  Status Import(int64_t vocab_rows);

 private:
  Status ReadTokens(int64_t vocab_rows);
  Status ReadToken(const JsonField& id_field, const std::string& text, TokenType type);
  Status ReadAddedToken(const JsonField& field);
  Status ReadByteLevel();
  Status CheckUnknown(const Tokenizer& tokenizer) const;
  Result<const PreRule*> ReadPreRule() const;
  void ReadByteLevelMerges();
  Status ReadSentencePiece();
  Status WriteEnds(bool add_bos_by_default);
  Status WriteTurnEnd(int32_t eos, const std::vector<int32_t>& ends);
  void WriteFlag(const char* name, bool value, bool by_default);
  Status WriteSampling();

  void Set(const std::string& key, MetaValue value) {
    TRINE_CHECK(meta_->Insert(key, std::move(value)), "the caller's metadata has no tokenizer");
  }
  void SetToken(const std::string& key, MetaValue value) {
    Set("tokenizer.ggml." + key, std::move(value));
  }
  TokenType& Type(int32_t id) { return types_[static_cast<size_t>(id)]; }

  const HfTokenizerFiles& files_;
  const JsonField root_, config_, generation_;
  Metadata* const meta_;
  TokenIds ids_;                    // by their texts in root_
  std::vector<std::string> texts_;  // by id
  std::vector<TokenType> types_;    // by id
};

Status Importer::ReadToken(const JsonField& id_field, const std::string& text, TokenType type) {
  TRINE_ASSIGN(const int64_t id, id_field.Int());
  if (id < 0 || id >= std::ssize(texts_)) {
    return id_field.Refuse("the embedding has " + std::to_string(texts_.size()) +
                           " rows; use the tokenizer of this model");
  }
  const auto at = static_cast<int32_t>(id);
  const auto [known, is_new] = ids_.emplace(text, at);
  const bool in_model = !is_new && known->second == at && Type(at) == TokenType::kNormal;
  if (!in_model && (!is_new || Type(at) != TokenType::kUnused)) {
    return id_field.Refuse("another token has that id, or " + Quote(text) +
                           " another one; make them agree");
  }
  texts_[static_cast<size_t>(id)] = text;
  Type(at) = type;
  return {};
}

Status Importer::ReadAddedToken(const JsonField& field) {
  const JsonField content = field["content"];
  TRINE_RETURN_IF_ERROR(content.String().status());
  TRINE_ASSIGN(const bool special, field["special"].Bool());
  for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
    TRINE_ASSIGN(const bool set, field[flag].BoolOr(false));
    if (set) return field[flag].Refuse("GGUF has no such flag, it must be false");
  }
  return ReadToken(field["id"], content.value().get_ref<const std::string&>(),
                   special ? TokenType::kControl : TokenType::kUserDefined);
}

// Ids without a token are named as other converters do.
Status Importer::ReadTokens(int64_t vocab_rows) {
  if (vocab_rows < 1 || vocab_rows > static_cast<int64_t>(kMaxEntries)) {
    return BadInput("the embedding has " + std::to_string(vocab_rows) + " rows; 1 to " +
                    std::to_string(kMaxEntries) + " are possible");
  }
  texts_.resize(static_cast<size_t>(vocab_rows));
  types_.assign(texts_.size(), TokenType::kUnused);
  const JsonField vocab = root_["model"]["vocab"];
  if (!vocab.value().is_object()) return vocab.Refuse("an object of tokens and ids is needed");
  for (const auto& [text, value] : vocab.value().items()) {
    const JsonField field(value, vocab.path() + "[" + ShownText(text) + "]");
    TRINE_RETURN_IF_ERROR(ReadToken(field, text, TokenType::kNormal));
  }
  if (!root_["added_tokens"].is_null()) {
    TRINE_ASSIGN(const std::vector<JsonField> items, root_["added_tokens"].Items());
    for (const JsonField& item : items) TRINE_RETURN_IF_ERROR(ReadAddedToken(item));
  }
  for (size_t id = 0; id < texts_.size(); ++id) {
    if (types_[id] == TokenType::kUnused) texts_[id] = "[PAD" + std::to_string(id) + "]";
  }
  return {};
}

// ---- Byte-level BPE

Result<const PreRule*> Importer::ReadPreRule() const {
  TRINE_ASSIGN(const JsonPreTokenizer pre, ReadPreTokenizer(root_["pre_tokenizer"]));
  if (pre.add_prefix_space) {
    return root_["pre_tokenizer"].Refuse("add_prefix_space must be false: GGUF has no key for it");
  }
  const PreRule* rule = FindPreRule(pre.passes);
  if (rule == nullptr) {
    std::string patterns;
    for (const SplitPass& pass : pre.passes) {
      patterns += (patterns.empty() ? "" : ", then ") + ShownText(pass.pattern);
    }
    return BadInput("pre_tokenizer splits by " + (patterns.empty() ? "nothing" : patterns) +
                    ", which is none of the rules " + PreRuleNames() +
                    "; use a model with one of these");
  }
  const JsonField ignore = root_["model"]["ignore_merges"];
  TRINE_ASSIGN(const bool ignores, ignore.BoolOr(false));
  if (ignores != rule->ignore_merges) {
    return ignore.Refuse("the rules " + std::string(rule->name) + " need " +
                         (rule->ignore_merges ? "true" : "false"));
  }
  return rule;
}

// Where a byte has no token GGUF leaves it out.
Status Importer::CheckUnknown(const Tokenizer& tokenizer) const {
  const JsonField unknown = root_["model"]["unk_token"];
  if (unknown.is_null()) return {};
  const int32_t id = ids_.find(unknown.value().get_ref<const std::string&>())->second;
  if (tokenizer.Type(id) != TokenType::kUnknown) return {};
  return unknown.Refuse("model.vocab lacks bytes, and GGUF has no token that stands for them");
}

// The last of equal merges counts in tokenizer.json, the first one in GGUF.
void Importer::ReadByteLevelMerges() {
  const JsonField merges = root_["model"]["merges"];
  std::vector<std::string> lines;
  std::unordered_set<std::string> seen;
  for (size_t rank = merges.value().size(); rank-- > 0;) {
    const nlohmann::json& merge = merges.value()[rank];
    std::string line = merge.is_string()
                           ? merge.get<std::string>()
                           : merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    if (line.starts_with("#version") || !seen.insert(line).second) continue;
    lines.push_back(std::move(line));
  }
  std::reverse(lines.begin(), lines.end());
  SetToken("merges", std::move(lines));
}

// The reader of tokenizer.json has seen to all that is not checked here.
Status Importer::ReadByteLevel() {
  TRINE_ASSIGN(const std::unique_ptr<Tokenizer> tokenizer, ReadTokenizerJson(files_));
  TRINE_RETURN_IF_ERROR(CheckUnknown(*tokenizer));
  TRINE_ASSIGN(const PreRule* rule, ReadPreRule());
  SetToken("model", std::string("gpt2"));
  SetToken("pre", std::string(rule->name));
  ReadByteLevelMerges();
  TRINE_ASSIGN(const int32_t unknown, NamedToken(config_, "unk_token", ids_));
  if (unknown >= 0) SetToken("unknown_token_id", int64_t{unknown});
  return WriteEnds(rule->add_bos);
}

// ---- SentencePiece's BPE

Status Importer::ReadSentencePiece() {
  TRINE_ASSIGN(SentencePieceRules rules, ReadSentencePieceJson(root_, ids_, &types_));
  SetToken("model", std::string("llama"));
  SetToken("scores", std::move(rules.scores));
  if (!rules.add_space_prefix) SetToken("add_space_prefix", false);
  const auto unknown = std::find(types_.begin(), types_.end(), TokenType::kUnknown);
  SetToken("unknown_token_id", int64_t{unknown - types_.begin()});
  TRINE_RETURN_IF_ERROR(WriteEnds(/*add_bos_by_default=*/true));
  for (const char* key : {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id"}) {
    if (meta_->Find(key) != nullptr) continue;
    return BadInput(
        "tokenizer_config.json names no BOS or EOS; model 'llama' needs both, add them");
  }
  return {};
}

// ---- What both have

void Importer::WriteFlag(const char* name, bool value, bool by_default) {
  if (!config_[name].is_null() || value != by_default) SetToken(name, value);
}

// BOS, EOS and padding are what tokenizer_config.json names, else what generation_config.json does.
Status Importer::WriteEnds(bool add_bos_by_default) {
  TRINE_ASSIGN(TextEnds ends, ReadTextEnds(root_["post_processor"], config_, ids_));
  TRINE_ASSIGN(const std::vector<int32_t> generation_ends, ReadEndIds(generation_, ids_));
  for (const int32_t id : {ends.bos, ends.eos}) {
    if (id >= 0 && Type(id) == TokenType::kNormal) Type(id) = TokenType::kControl;
  }
  const JsonField bos = generation_["bos_token_id"], pad = generation_["pad_token_id"];
  if (ends.bos < 0 && !bos.is_null()) {
    TRINE_ASSIGN(ends.bos, ReadTokenId(bos, ids_));
  }
  if (ends.pad < 0 && !pad.is_null()) {
    TRINE_ASSIGN(ends.pad, ReadTokenId(pad, ids_));
  }
  if (ends.eos < 0 && !generation_ends.empty()) ends.eos = generation_ends[0];
  if (ends.bos >= 0) SetToken("bos_token_id", int64_t{ends.bos});
  if (ends.eos >= 0) SetToken("eos_token_id", int64_t{ends.eos});
  if (ends.pad >= 0) SetToken("padding_token_id", int64_t{ends.pad});
  WriteFlag("add_bos_token", ends.add_bos, add_bos_by_default);
  WriteFlag("add_eos_token", ends.add_eos, /*by_default=*/false);
  return WriteTurnEnd(ends.eos, generation_ends);
}

// The one end that is neither EOS nor known by its text.
Status Importer::WriteTurnEnd(int32_t eos, const std::vector<int32_t>& ends) {
  int32_t turn_end = -1;
  for (const int32_t id : ends) {
    const bool known =
        Type(id) == TokenType::kControl && IsEndMarker(texts_[static_cast<size_t>(id)]);
    if (id == eos || id == turn_end || known) continue;
    if (turn_end >= 0) {
      return generation_["eos_token_id"].Refuse(
          "GGUF can name one end beside EOS and the usual ones, but " + std::to_string(turn_end) +
          " and " + std::to_string(id) + " are two; leave one out");
    }
    turn_end = id;
  }
  if (turn_end >= 0) SetToken("eot_token_id", int64_t{turn_end});
  return {};
}

// As f32, which is what GGUF keeps. Greedy decoding is a temperature of zero.
Status Importer::WriteSampling() {
  const JsonField temperature = generation_["temperature"];
  TRINE_ASSIGN(const bool samples, generation_["do_sample"].BoolOr(true));
  if (!samples) {
    Set("general.sampling.temp", 0.0);
  } else if (!temperature.is_null()) {
    TRINE_ASSIGN(const double value, temperature.Number());
    Set("general.sampling.temp", static_cast<double>(static_cast<float>(value)));
  }
  const JsonField top_p = generation_["top_p"], top_k = generation_["top_k"];
  if (!top_p.is_null()) {
    TRINE_ASSIGN(const double value, top_p.Number());
    Set("general.sampling.top_p", static_cast<double>(static_cast<float>(value)));
  }
  if (!top_k.is_null()) {
    TRINE_ASSIGN(const int64_t value, top_k.Int());
    Set("general.sampling.top_k", value);
  }
  return {};
}

Status Importer::Import(int64_t vocab_rows) {
  TRINE_RETURN_IF_ERROR(ReadTokens(vocab_rows));
  TRINE_RETURN_IF_ERROR(IsSentencePieceJson(root_) ? ReadSentencePiece() : ReadByteLevel());
  SetToken("tokens", std::move(texts_));
  std::vector<int64_t> types;
  for (const TokenType type : types_) types.push_back(static_cast<int64_t>(type));
  SetToken("token_type", std::move(types));
  TRINE_ASSIGN(std::string chat, ReadChatTemplate(config_, files_.chat_template));
  if (!chat.empty()) Set("tokenizer.chat_template", std::move(chat));
  TRINE_RETURN_IF_ERROR(WriteSampling());
  // The two must agree on what is a tokenizer.
  return Tokenizer::FromMetadata(*meta_).status();
}

}  // namespace

Status FromHuggingFace(const std::string& folder, int64_t vocab_rows, Metadata& meta) {
  const std::string path = folder + "/tokenizer.json";
  TRINE_ASSIGN(const HfTokenizerFiles files, ReadTokenizerFiles(path));
  const auto import = [&]() -> Status {
    TRINE_ASSIGN(const CheckpointJson json, ParseTokenizerFiles(files));
    return Importer(files, json, &meta).Import(vocab_rows);
  };
  const Status imported = import();
  return imported.ok() ? imported : BadInput(path + ": " + imported.message());
}

}  // namespace trine
