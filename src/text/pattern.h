// Translates a regular expression of a tokenizer file into PCRE2's dialect. Such files follow
// Oniguruma's (Ruby's) dialect, where some spellings mean something else. It matches nothing.
#pragma once

#include <string>
#include <string_view>

#include "src/core/result.h"

namespace trine {

// A pattern that gives PCRE2 (with UTF, UCP, MULTILINE and line feed as the only line end) the
// meaning that `pattern` has in Oniguruma: \s, \S, \w, \W, \b and \B by Unicode's properties, \v as
// the vertical tab, (?m) as "dot matches a line feed", \p{Han} as the script without its
// extensions. A spelling without such a translation is an error that names pattern and spelling:
// nested sets and && in [...], POSIX classes, {n,m}+ and {n}?, flags in mid-pattern, \h, \K, \X,
// verbs, conditions, recursion. What only PCRE2 can judge is left to it. Behind each quantifier
// without an upper bound there is a callout, for matching to look at the clock.
Result<std::string> TranslatePattern(std::string_view pattern);

// The error for a pattern that is not supported.
Status BadPattern(std::string_view pattern, const std::string& why);

// A pattern that matches `text` itself.
std::string QuotePattern(std::string_view text);

}  // namespace trine
