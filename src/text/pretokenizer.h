// PreTokenizer: cuts text into the pieces that byte-level BPE never merges across, by a list of
// regular expressions: those of tokenizer.ggml.pre by name, the table in pretokenizer.cc is the
// place to add one; others as a tokenizer.json states them. It knows no vocabulary.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/result.h"
#include "src/text/regex.h"

namespace trine {

// One pass over a text: the matches of a pattern and the gaps between them become pieces.
struct SplitPass {
  enum class Keep { kBoth, kMatches, kGaps };

  std::string pattern;  // pattern.h says in which dialect
  Keep keep = Keep::kBoth;

  bool operator==(const SplitPass&) const = default;
};

// What a value of tokenizer.ggml.pre stands for.
struct PreRule {
  std::string_view name;
  std::vector<SplitPass> passes;  // in order; each splits the pieces left by the one before
  bool ignore_merges;             // a piece that is a token is that token, merges or not
  bool add_bos;                   // where the metadata does not say
};

// nullptr if there is no such rule. Of several with the same passes the first.
const PreRule* FindPreRule(std::string_view name);
const PreRule* FindPreRule(const std::vector<SplitPass>& passes);

// "smollm, gpt-2, ...": for error messages.
std::string PreRuleNames();

// GPT-2's pattern, which tokenizer.json calls ByteLevel's own.
std::string_view Gpt2Pattern();

// Immutable after creation, so any thread may use it.
class PreTokenizer {
 public:
  // An error names the pattern that is not supported. No passes: the text is one piece.
  static Result<std::unique_ptr<PreTokenizer>> Create(const std::vector<SplitPass>& passes);

  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;

  using Sink = std::function<void(std::string_view piece)>;

  // Hands every piece of `text` to `sink`, in order; pieces are not empty and lie in `text`, which
  // must be valid UTF-8. Matching that breaks off is an error, never a short result: the scratch
  // bounds the time.
  Status Split(std::string_view text, RegexScratch* scratch, const Sink& sink) const;

 private:
  struct Pass {
    std::unique_ptr<const Regex> regex;
    SplitPass::Keep keep;
  };

  PreTokenizer() = default;

  bool SplitFrom(size_t pass, std::string_view text, RegexScratch* scratch, const Sink& sink) const;

  std::vector<Pass> passes_;
};

}  // namespace trine
