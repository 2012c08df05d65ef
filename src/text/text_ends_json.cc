#include "src/text/text_ends_json.h"

#include <algorithm>
#include <string>

namespace trine {
namespace {

// BOS or none, the text, EOS or none.
Status ReadTemplate(const JsonField& processor, const TokenIds& ids, TextEnds* ends) {
  const JsonField single = processor["single"];
  TRINE_ASSIGN(const std::vector<JsonField> items, single.Items());
  bool behind_text = false;
  for (const JsonField& item : items) {
    if (!item["Sequence"].is_null()) {
      if (behind_text) return item.Refuse("the text may occur once");
      behind_text = true;
      continue;
    }
    TRINE_ASSIGN(const std::string name, item["SpecialToken"]["id"].String());
    const JsonField given = processor["special_tokens"][name]["ids"];
    if (!given.value().is_array() || given.value().size() != 1) {
      return given.Refuse("an array of one id is needed");
    }
    int32_t& end = behind_text ? ends->eos : ends->bos;
    if (end >= 0) return item.Refuse("one token in front of the text and one behind are supported");
    TRINE_ASSIGN(end, ReadTokenId(given[0], ids));
    (behind_text ? ends->add_eos : ends->add_bos) = true;
  }
  if (!behind_text) return single.Refuse("it does not contain the text");
  return {};
}

Status ReadPostProcessor(const JsonField& processor, const TokenIds& ids, TextEnds* ends) {
  TRINE_ASSIGN(const std::string type, processor.Type());
  if (type == "null" || type == "ByteLevel") return {};  // ByteLevel moves offsets only
  if (type == "TemplateProcessing") return ReadTemplate(processor, ids, ends);
  if (type != "Sequence" || processor.path() != "post_processor") {
    return processor["type"].Refuse("supported: ByteLevel, TemplateProcessing, one Sequence");
  }
  TRINE_ASSIGN(const std::vector<JsonField> items, processor["processors"].Items());
  for (const JsonField& item : items) TRINE_RETURN_IF_ERROR(ReadPostProcessor(item, ids, ends));
  return {};
}

// *id and *add are what the post-processor says; what the configuration says wins, but the two may
// not name different tokens.
Status ReadEnd(const JsonField& config, const TokenIds& ids, const char* name, const char* flag,
               int32_t* id, bool* add) {
  TRINE_ASSIGN(const int32_t given, NamedToken(config, name, ids));
  TRINE_ASSIGN(const bool wanted, config[flag].BoolOr(*add));
  if (wanted && *id >= 0 && given >= 0 && *id != given) {
    return config[name].Refuse("post_processor adds token " + std::to_string(*id) +
                               " instead; make them agree");
  }
  if (given >= 0) *id = given;
  *add = wanted;
  return {};
}

}  // namespace

Result<int32_t> NamedToken(const JsonField& config, std::string_view name, const TokenIds& ids) {
  JsonField field = config[name];
  if (field.is_null()) return int32_t{-1};
  if (field.value().is_object()) field = field["content"];
  TRINE_ASSIGN(const std::string text, field.String());
  const auto found = ids.find(text);
  if (found == ids.end()) return field.Refuse("tokenizer.json has no such token");
  return found->second;
}

Result<TextEnds> ReadTextEnds(const JsonField& post_processor, const JsonField& config,
                              const TokenIds& ids) {
  TextEnds ends;
  TRINE_RETURN_IF_ERROR(ReadPostProcessor(post_processor, ids, &ends));
  TRINE_RETURN_IF_ERROR(
      ReadEnd(config, ids, "bos_token", "add_bos_token", &ends.bos, &ends.add_bos));
  TRINE_RETURN_IF_ERROR(
      ReadEnd(config, ids, "eos_token", "add_eos_token", &ends.eos, &ends.add_eos));
  TRINE_ASSIGN(ends.pad, NamedToken(config, "pad_token", ids));
  return ends;
}

Result<std::vector<int32_t>> ReadEndIds(const JsonField& generation, const TokenIds& ids) {
  const JsonField field = generation["eos_token_id"];
  std::vector<int32_t> ends;
  if (field.is_null()) return ends;
  std::vector<JsonField> items = {field};
  if (field.value().is_array()) {
    TRINE_ASSIGN(items, field.Items());
  }
  for (const JsonField& item : items) {
    TRINE_ASSIGN(const int32_t id, ReadTokenId(item, ids));
    ends.push_back(id);
  }
  return ends;
}

Result<int32_t> ReadTokenId(const JsonField& field, const TokenIds& ids) {
  TRINE_ASSIGN(const int64_t id, field.Int());
  const auto has_id = [id](const auto& token) { return token.second == id; };
  if (std::none_of(ids.begin(), ids.end(), has_id)) {
    return field.Refuse("tokenizer.json has no token with that id");
  }
  return static_cast<int32_t>(id);
}

}  // namespace trine
