// The values of options: text into numbers, lists and sizes, and their limits. Errors are of code
// kUsage and name `option`, the value and what would do.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "src/core/result.h"

namespace trine {

Status UsageError(std::string message);

Status OneOf(const std::string& option, const std::string& value,
             std::initializer_list<const char*> possible);
Status InRange(const std::string& option, double value, double least, double most);

// Numbers >= 0 with commas between them.
Result<std::vector<double>> ParseList(const std::string& option, const std::string& text);

// A list of integers from `least` on and of ranges as llama-bench has them: "1-4", "1-9+4"
// (1, 5, 9), "1-8*2" (1, 2, 4, 8).
Result<std::vector<int64_t>> ParseLengths(const std::string& option, const std::string& text,
                                          int64_t least);

// A number of bytes with KB, MB or GB, powers of ten, behind it.
Result<int64_t> ParseBytes(const std::string& option, const std::string& text);

// A token and what to add to its logit, as llama.cpp writes it: "15043+1.5", "15043-inf".
Result<std::pair<int32_t, double>> ParseLogitBias(const std::string& option,
                                                  const std::string& text);

// \n, \r, \t, \\, \' and \" become the characters they stand for; all else stays.
std::string Unescape(const std::string& text);

}  // namespace trine
