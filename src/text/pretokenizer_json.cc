#include "src/text/pretokenizer_json.h"

#include <string>

#include "src/text/pattern.h"

namespace trine {
namespace {

constexpr size_t kMaxPasses = 32;

class Reader {
 public:
  Status Read(const JsonField& pre);

  JsonPreTokenizer result;
  bool has_byte_level = false;

 private:
  Status ReadSplit(const JsonField& split);
  Status ReadByteLevel(const JsonField& level);
};

Status Reader::Read(const JsonField& pre) {
  TRINE_ASSIGN(const std::string type, pre.Type());
  if (has_byte_level) return pre.Refuse("nothing may follow ByteLevel");
  if (result.passes.size() > kMaxPasses) {
    return pre.Refuse("at most " + std::to_string(kMaxPasses) + " pre-tokenizers are supported");
  }
  if (type == "Split") return ReadSplit(pre);
  if (type == "ByteLevel") return ReadByteLevel(pre);
  if (type == "Digits") {
    TRINE_ASSIGN(const bool individual, pre["individual_digits"].BoolOr(false));
    result.passes.push_back({individual ? R"(\p{N})" : R"(\p{N}+)"});
    return {};
  }
  if (type != "Sequence" || pre.path() != "pre_tokenizer") {
    return pre["type"].Refuse("supported: Split, Digits, ByteLevel and one Sequence of these");
  }
  TRINE_ASSIGN(const std::vector<JsonField> items, pre["pretokenizers"].Items());
  for (const JsonField& item : items) TRINE_RETURN_IF_ERROR(Read(item));
  return {};
}

Status Reader::ReadSplit(const JsonField& split) {
  SplitPass pass;
  TRINE_ASSIGN(const bool invert, split["invert"].BoolOr(false));
  TRINE_ASSIGN(const std::string behavior, split["behavior"].String());
  if (behavior == "Removed") {
    pass.keep = invert ? SplitPass::Keep::kMatches : SplitPass::Keep::kGaps;
  } else if (behavior != "Isolated") {
    return split["behavior"].Refuse("supported: Isolated, Removed");
  }
  const JsonField pattern = split["pattern"];
  const JsonField literal = pattern["String"];
  if (!literal.is_null()) {
    TRINE_ASSIGN(const std::string text, literal.String());
    pass.pattern = QuotePattern(text);
  } else {
    TRINE_ASSIGN(pass.pattern, pattern["Regex"].String());
  }
  result.passes.push_back(std::move(pass));
  return {};
}

Status Reader::ReadByteLevel(const JsonField& level) {
  has_byte_level = true;
  const JsonField prefix = level["add_prefix_space"];
  TRINE_ASSIGN(result.add_prefix_space, prefix.BoolOr(true));
  if (result.add_prefix_space && !result.passes.empty()) {
    return prefix.Refuse("it must be false behind other pre-tokenizers");
  }
  TRINE_ASSIGN(const bool use_regex, level["use_regex"].BoolOr(true));
  if (use_regex) result.passes.push_back({std::string(Gpt2Pattern())});
  return {};
}

}  // namespace

Result<JsonPreTokenizer> ReadPreTokenizer(const JsonField& pre) {
  Reader reader;
  TRINE_RETURN_IF_ERROR(reader.Read(pre));
  if (!reader.has_byte_level) {
    return pre.Refuse("it needs a ByteLevel: only byte-level BPE is supported");
  }
  return std::move(reader.result);
}

nlohmann::ordered_json WritePreTokenizer(const std::vector<SplitPass>& passes) {
  nlohmann::ordered_json items = nlohmann::ordered_json::array();
  for (const SplitPass& pass : passes) {
    items.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", pass.pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  items.push_back({{"type", "ByteLevel"},
                   {"add_prefix_space", false},
                   {"trim_offsets", false},
                   {"use_regex", false}});
  return {{"type", "Sequence"}, {"pretokenizers", std::move(items)}};
}

}  // namespace trine
