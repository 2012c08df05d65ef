#include "src/text/stop_strings.h"

#include <algorithm>
#include <utility>

namespace trine {

StopStrings::StopStrings(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    Pattern pattern{std::move(stop), {0, 0}, 0};
    const std::string& text = pattern.text;
    for (size_t i = 1; i < text.size(); ++i) {
      size_t border = pattern.borders[i];
      while (border > 0 && text[border] != text[i]) border = pattern.borders[border];
      pattern.borders.push_back(text[border] == text[i] ? border + 1 : 0);
    }
    patterns_.push_back(std::move(pattern));
  }
}

// One more byte of the text.
void StopStrings::Match(char byte) {
  ++end_;
  size_t longest = 0;  // of what may become a stop string
  for (Pattern& pattern : patterns_) {
    size_t& matched = pattern.matched;
    while (matched > 0 && pattern.text[matched] != byte) matched = pattern.borders[matched];
    if (pattern.text[matched] == byte) ++matched;
    if (matched == pattern.text.size()) {
      const int64_t begin = end_ - static_cast<int64_t>(matched);
      if (stop_ < 0 || begin < stop_) stop_ = begin;
      matched = pattern.borders[matched];
    }
    longest = std::max(longest, matched);
  }
  certain_ = end_ - static_cast<int64_t>(longest);
  found_ = stop_ >= 0 && certain_ >= stop_;
}

// The text from given_ to `end`.
std::string StopStrings::Take(int64_t end) {
  std::string text = held_.substr(unused_, static_cast<size_t>(end - given_));
  unused_ += text.size();
  given_ = end;
  if (2 * unused_ > held_.size()) held_.erase(0, std::exchange(unused_, 0));
  return text;
}

std::string StopStrings::Next(std::string_view piece) {
  if (found_) return {};
  held_ += piece;
  for (const char byte : piece) {
    Match(byte);
    if (found_) return Take(stop_);
  }
  return Take(certain_);
}

std::string StopStrings::Finish() {
  if (found_) return {};
  found_ = stop_ >= 0;
  return Take(found_ ? stop_ : end_);
}

}  // namespace trine
