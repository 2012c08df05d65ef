// SpecialTokens: finds the tokens that are written out in a text as such (<|im_end|>), which no
// merging may produce. It knows no vocabulary format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trine {

// Immutable after creation, so any thread may use it.
class SpecialTokens {
 public:
  struct Token {
    std::string text;
    int32_t id;
  };
  struct Match {
    int64_t begin, end;
    int32_t id;
  };

  // Empty texts are left out.
  explicit SpecialTokens(std::vector<Token> tokens);

  // The occurrences in `text`, in order and without overlap. Longer ones take their place first,
  // wherever they are, then leftmost ones.
  std::vector<Match> Find(std::string_view text) const;

 private:
  void FindAt(std::string_view text, size_t begin, std::vector<Match>* matches) const;

  std::vector<Token> tokens_;  // by text
  bool starts_[256] = {};      // whether a token starts with the byte
};

}  // namespace trine
