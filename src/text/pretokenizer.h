// PreTokenizer: cuts text into the pieces that byte-level BPE never merges across, by a named list
// of regular expressions. The table in pretokenizer.cc is the place to add one. It knows no
// vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/result.h"

namespace trine {

// What a value of tokenizer.ggml.pre stands for.
struct PreRule {
  std::string_view name;
  std::vector<std::string_view> passes;  // in order; each splits the pieces left by the one before
  bool ignore_merges;                    // a piece that is a token is that token, merges or not
  bool add_bos;                          // where the metadata does not say
};

// nullptr if there is no such rule.
const PreRule* FindPreRule(std::string_view name);

// "smollm, gpt-2, ...": for error messages.
std::string PreRuleNames();

// Immutable after creation, so any thread may use it.
class PreTokenizer {
 public:
  // The patterns are Perl-like with Unicode classes; \s and \S mean Unicode's White_Space. An error
  // names the pattern that does not compile.
  static Result<std::unique_ptr<PreTokenizer>> Create(const std::vector<std::string_view>& passes);

  ~PreTokenizer();
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;

  // Replaces *ends with the end offset of each piece; the pieces are not empty and cover the text.
  // What a pattern leaves unmatched is a piece too. `text` must be valid UTF-8. Matching that
  // breaks off (its limits grow with the text, so it should not) is an error, never a short result.
  Status Split(std::string_view text, std::vector<int64_t>* ends) const;

 private:
  struct Pass;

  PreTokenizer();

  std::vector<Pass> passes_;
};

}  // namespace trine
