// CharacterJoins: cuts text where no token has the two characters next to each other, so that no
// merge can reach across: the pieces of SentencePiece-style BPE, which has no pre-tokeniser.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "src/text/merger.h"

namespace trine {

// Immutable once all tokens are added, so any thread may use it.
class CharacterJoins {
 public:
  void AddToken(std::string_view token);  // valid UTF-8

  // Hands every piece of `text` (valid UTF-8) to `sink`, in order; pieces are not empty. Characters
  // in a row that are in no token stay together.
  void Split(std::string_view text, const std::function<void(std::string_view piece)>& sink) const;

 private:
  bool Joined(char32_t left, char32_t right) const;

  MergeTable pairs_;         // of code points
  std::vector<bool> known_;  // by code point
};

}  // namespace trine
