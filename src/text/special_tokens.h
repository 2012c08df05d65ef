// SpecialTokens: finds the tokens that are written out in a text as such (<|im_end|>), which no
// merging may produce. It knows no vocabulary format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trine {

// Where control tokens count: byte ranges of a text, in order, apart from each other.
struct ByteRange {
  int64_t begin, end;
};
using ByteRanges = std::vector<ByteRange>;

// The most bytes of such a token: finding them takes up to that many steps for each byte of a text.
constexpr size_t kMaxSpecialBytes = 256;

// Immutable after creation, so any thread may use it.
class SpecialTokens {
 public:
  struct Token {
    std::string text;
    int32_t id;
    bool control = false;      // counts only where it lies inside one of the ranges
    bool single_word = false;  // counts only where no word character (letter, mark, decimal digit,
                               // connector) touches it
    bool lstrip = false;       // takes the white space in front of it, too
    bool rstrip = false;       // takes the white space behind it, too
  };
  struct Match {
    int64_t begin, end;  // with the white space it takes; `begin` is below the end of the match
                         // before it where that one took white space that this one starts with
    int32_t id;
  };

  // Empty texts are left out; of equal texts the first counts.
  explicit SpecialTokens(std::vector<Token> tokens);

  bool empty() const { return tokens_.empty(); }

  // Walks through one text: the leftmost token first, the longest of those that begin there. The
  // tokens, the text and the ranges must outlive it.
  class Cursor {
   public:
    // `ranges` are offsets in a text of which `text` is the part from `base` on.
    Cursor(const SpecialTokens& tokens, std::string_view text, const ByteRanges& ranges,
           int64_t base = 0)
        : tokens_(tokens), text_(text), ranges_(ranges), base_(base) {}

    std::optional<Match> Next();

   private:
    size_t RangeEnd();
    bool IsApart(size_t begin, size_t end) const;

    const SpecialTokens& tokens_;
    const std::string_view text_;
    const ByteRanges& ranges_;
    const int64_t base_;
    size_t range_ = 0;  // the first that does not end in front of at_
    size_t at_ = 0;     // where the search goes on
    size_t done_ = 0;   // the end of the last match
  };

 private:
  const Token* LongestAt(std::string_view text, size_t begin, size_t range_end) const;

  std::vector<Token> tokens_;  // by text
  bool starts_[256] = {};      // whether a token starts with the byte
};

}  // namespace trine
