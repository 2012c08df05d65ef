// StopStrings: ends a text at the first of some strings, however the text is cut into pieces. What
// may be the beginning of one is held back. Knows bytes only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trine {

class StopStrings {
 public:
  // None is empty. Without any, all text passes.
  explicit StopStrings(std::vector<std::string> stops);

  // The text that became certain with this piece: all before the leftmost place where a stop string
  // stands or may yet turn out to. "" once found(). Time is linear in the text, times the number of
  // stop strings.
  std::string Next(std::string_view piece);

  // A stop string is in the text: what stands before it has been given out, the rest never will be.
  // The one that begins first counts, even if another one inside it ends before it: that is not
  // found until the outer one has proved to be none.
  bool found() const { return found_; }

  // At the end of the text: what was held back, up to a stop string if there is one.
  std::string Finish();

 private:
  // Knuth, Morris, Pratt 1977.
  struct Pattern {
    std::string text;
    std::vector<size_t>
        borders;         // [i]: the longest proper beginning of text[0, i) that ends it too
    size_t matched = 0;  // the longest beginning of text that the text so far ends with
  };

  void Match(char byte);
  std::string Take(int64_t end);

  std::vector<Pattern> patterns_;
  // Places are counted in bytes from the beginning of the text.
  int64_t end_ = 0;      // of what was looked at
  int64_t certain_ = 0;  // where the leftmost beginning of a stop string, that may go on, stands
  int64_t given_ = 0;    // out, up to here
  int64_t stop_ = -1;    // where the leftmost stop string so far stands; -1: none
  bool found_ = false;
  std::string held_;   // the text from given_ - unused_ on
  size_t unused_ = 0;  // bytes at the beginning of held_ that were given out
};

}  // namespace trine
