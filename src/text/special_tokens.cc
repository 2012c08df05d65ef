#include "src/text/special_tokens.h"

#include <algorithm>

namespace trine {
namespace {

// Keeps the matches that no longer or equally long match, more to the left, overlaps.
void ResolveOverlaps(size_t text_size, std::vector<SpecialTokens::Match>* matches) {
  using Match = SpecialTokens::Match;
  std::stable_sort(matches->begin(), matches->end(), [](const Match& a, const Match& b) {
    return a.end - a.begin > b.end - b.begin;
  });
  std::vector<bool> taken(text_size);
  // What is taken already is at least as long, so it cannot lie strictly inside: the ends tell.
  const auto overlaps = [&taken](const Match& match) {
    if (taken[static_cast<size_t>(match.begin)] || taken[static_cast<size_t>(match.end) - 1]) {
      return true;
    }
    std::fill(taken.begin() + match.begin, taken.begin() + match.end, true);
    return false;
  };
  matches->erase(std::remove_if(matches->begin(), matches->end(), overlaps), matches->end());
  std::sort(matches->begin(), matches->end(),
            [](const Match& a, const Match& b) { return a.begin < b.begin; });
}

}  // namespace

SpecialTokens::SpecialTokens(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  const auto empty = [](const Token& token) { return token.text.empty(); };
  tokens_.erase(std::remove_if(tokens_.begin(), tokens_.end(), empty), tokens_.end());
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const Token& a, const Token& b) { return a.text < b.text; });
  for (const Token& token : tokens_) starts_[static_cast<unsigned char>(token.text[0])] = true;
}

std::vector<SpecialTokens::Match> SpecialTokens::Find(std::string_view text) const {
  std::vector<Match> matches;
  if (tokens_.empty()) return matches;
  for (size_t begin = 0; begin < text.size(); ++begin) {
    if (starts_[static_cast<unsigned char>(text[begin])]) FindAt(text, begin, &matches);
  }
  if (matches.size() > 1) ResolveOverlaps(text.size(), &matches);
  return matches;
}

// Narrows the sorted tokens to those that share ever more of the text. A token that the text has
// whole is the first of its range, for it is a prefix of the others.
void SpecialTokens::FindAt(std::string_view text, size_t begin, std::vector<Match>* matches) const {
  auto low = tokens_.begin();
  auto high = tokens_.end();
  for (size_t length = 1; begin + length <= text.size(); ++length) {
    const char next = text[begin + length - 1];
    const auto before = [length](const Token& token, char c) {
      return static_cast<unsigned char>(token.text[length - 1]) < static_cast<unsigned char>(c);
    };
    const auto behind = [length](char c, const Token& token) {
      return static_cast<unsigned char>(c) < static_cast<unsigned char>(token.text[length - 1]);
    };
    low = std::lower_bound(low, high, next, before);
    high = std::upper_bound(low, high, next, behind);
    if (low == high) return;
    if (low->text.size() != length) continue;
    matches->push_back(
        {static_cast<int64_t>(begin), static_cast<int64_t>(begin + length), low->id});
    while (low != high && low->text.size() == length) ++low;  // equal texts: the first counts
  }
}

}  // namespace trine
