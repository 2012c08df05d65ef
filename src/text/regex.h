// Regex: the regular expressions of tokenizer files, run by PCRE2 with bounded time and memory. The
// dialect is in pattern.h. It knows no token.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "src/core/result.h"

namespace trine {

// What matching needs besides a pattern and a text: one per thread and text, for any patterns.
class RegexScratch {
 public:
  // All matching with it together may take steps, and this thread as long as it exists CPU time, in
  // proportion to `text_bytes`. The clock is looked at between matches and behind the loops in one,
  // so that the time may be exceeded by that of some loops over the text.
  explicit RegexScratch(size_t text_bytes);
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

  // Why a Find gave up.
  std::string Error() const;

 private:
  friend class Regex;
  struct State;
  std::unique_ptr<State> state_;
};

// Immutable after creation, so any thread may use it.
class Regex {
 public:
  // An error names the pattern and what in it is not supported.
  static Result<std::unique_ptr<const Regex>> Compile(std::string_view pattern);

  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  enum class Outcome { kMatch, kNone, kGaveUp };

  // The leftmost match that begins at or behind `from`, in valid UTF-8. kGaveUp: the scratch is
  // spent, or the pattern needs too much memory. *begin and *end are set for kMatch only.
  Outcome Find(std::string_view text, size_t from, RegexScratch* scratch, size_t* begin,
               size_t* end) const;

 private:
  struct Code;

  explicit Regex(std::unique_ptr<Code> code);

  std::unique_ptr<Code> code_;
};

}  // namespace trine
