#include "src/text/pretokenizer.h"

#include "src/text/utf8.h"

namespace trine {
namespace {

constexpr char kGpt2[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr char kQwen2[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                          R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kQwen35[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
                           R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kLlama3[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                           R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

const PreRule kRules[] = {
    {"smollm", {{R"(\p{N})"}, {kGpt2}}, /*ignore_merges=*/false, /*add_bos=*/false},
    {"gpt-2", {{kGpt2}}, /*ignore_merges=*/false, /*add_bos=*/false},
    {"qwen2", {{kQwen2}}, /*ignore_merges=*/false, /*add_bos=*/false},
    {"qwen35", {{kQwen35}}, /*ignore_merges=*/false, /*add_bos=*/false},
    {"llama-bpe", {{kLlama3}}, /*ignore_merges=*/true, /*add_bos=*/true},
    {"llama3", {{kLlama3}}, /*ignore_merges=*/true, /*add_bos=*/true},
    {"llama-v3", {{kLlama3}}, /*ignore_merges=*/true, /*add_bos=*/true},
};

// Walks through the matches of a pattern in the manner of the engine that vocabularies were trained
// with: an empty match where the last match ended does not count, and the search goes on behind the
// character there.
class Matches {
 public:
  Matches(const Regex& regex, std::string_view text, RegexScratch* scratch)
      : regex_(regex), text_(text), scratch_(scratch) {}

  size_t begin() const { return begin_; }
  size_t end() const { return end_; }

  Regex::Outcome Next() {
    const size_t last = end_;
    while (from_ <= text_.size()) {
      const Regex::Outcome outcome = regex_.Find(text_, from_, scratch_, &begin_, &end_);
      if (outcome != Regex::Outcome::kMatch) return outcome;
      from_ = end_;
      if (begin_ != end_ || !any_ || end_ != last) {
        any_ = true;
        return outcome;
      }
      if (from_ == text_.size()) break;
      DecodeUtf8(text_, &from_);
    }
    return Regex::Outcome::kNone;
  }

 private:
  const Regex& regex_;
  const std::string_view text_;
  RegexScratch* const scratch_;
  size_t from_ = 0;
  size_t begin_ = 0, end_ = 0;
  bool any_ = false;
};

}  // namespace

const PreRule* FindPreRule(std::string_view name) {
  for (const PreRule& rule : kRules) {
    if (rule.name == name) return &rule;
  }
  return nullptr;
}

const PreRule* FindPreRule(const std::vector<SplitPass>& passes) {
  for (const PreRule& rule : kRules) {
    if (rule.passes == passes) return &rule;
  }
  return nullptr;
}

std::string PreRuleNames() {
  std::string names;
  for (const PreRule& rule : kRules) {
    if (!names.empty()) names += ", ";
    names += rule.name;
  }
  return names;
}

std::string_view Gpt2Pattern() {
  return kGpt2;
}

Result<std::unique_ptr<PreTokenizer>> PreTokenizer::Create(const std::vector<SplitPass>& passes) {
  std::unique_ptr<PreTokenizer> result(new PreTokenizer);
  for (const SplitPass& pass : passes) {
    TRINE_ASSIGN(auto regex, Regex::Compile(pass.pattern));
    result->passes_.push_back({std::move(regex), pass.keep});
  }
  return result;
}

Status PreTokenizer::Split(std::string_view text, RegexScratch* scratch, const Sink& sink) const {
  if (SplitFrom(0, text, scratch, sink)) return {};
  return BadInput("text of " + std::to_string(text.size()) + " bytes cannot be split into words (" +
                  scratch->Error() + "); shorten it");
}

// False: matching gave up.
bool PreTokenizer::SplitFrom(size_t pass, std::string_view text, RegexScratch* scratch,
                             const Sink& sink) const {
  if (text.empty()) return true;
  if (pass == passes_.size()) {
    sink(text);
    return true;
  }
  const SplitPass::Keep keep = passes_[pass].keep;
  const auto pass_on = [&](size_t begin, size_t end, SplitPass::Keep dropped) {
    if (begin == end || keep == dropped) return true;
    return SplitFrom(pass + 1, text.substr(begin, end - begin), scratch, sink);
  };
  size_t done = 0;
  Matches matches(*passes_[pass].regex, text, scratch);
  Regex::Outcome outcome;
  while ((outcome = matches.Next()) == Regex::Outcome::kMatch) {
    const size_t end = matches.end();
    if (!pass_on(done, matches.begin(), SplitPass::Keep::kMatches)) return false;
    if (!pass_on(matches.begin(), end, SplitPass::Keep::kGaps)) return false;
    done = end;
  }
  if (outcome == Regex::Outcome::kGaveUp) return false;
  return pass_on(done, text.size(), SplitPass::Keep::kMatches);
}

}  // namespace trine
