#include "src/text/special_tokens.h"

#include <algorithm>

#include "src/text/utf8.h"

namespace trine {
namespace {

// The start of the character that ends at `end` (> 0) in valid UTF-8.
size_t CharacterBefore(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while ((static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

size_t SkipSpaceLeft(std::string_view text, size_t end, size_t least) {
  while (end > least) {
    const size_t begin = CharacterBefore(text, end);
    size_t at = begin;
    if (!IsWhiteSpace(DecodeUtf8(text, &at))) break;
    end = begin;
  }
  return std::max(end, least);
}

size_t SkipSpaceRight(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    size_t at = begin;
    if (!IsWhiteSpace(DecodeUtf8(text, &at))) break;
    begin = at;
  }
  return begin;
}

}  // namespace

SpecialTokens::SpecialTokens(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  const auto empty = [](const Token& token) { return token.text.empty(); };
  tokens_.erase(std::remove_if(tokens_.begin(), tokens_.end(), empty), tokens_.end());
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const Token& a, const Token& b) { return a.text < b.text; });
  for (const Token& token : tokens_) starts_[static_cast<unsigned char>(token.text[0])] = true;
}

// Narrows the sorted tokens to those that share ever more of the text. A token that the text has
// whole is the first of its range, for it is a prefix of the others.
const SpecialTokens::Token* SpecialTokens::LongestAt(std::string_view text, size_t begin,
                                                     size_t range_end) const {
  const Token* longest = nullptr;
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
    if (low == high) break;
    if (low->text.size() != length) continue;
    if (!low->control || begin + length <= range_end) longest = &*low;
    while (low != high && low->text.size() == length) ++low;
  }
  return longest;
}

// The end of the range that at_ lies in; 0 if it lies in none.
size_t SpecialTokens::Cursor::RangeEnd() {
  const int64_t at = base_ + static_cast<int64_t>(at_);
  while (range_ < ranges_.size() && ranges_[range_].end <= at) ++range_;
  if (range_ == ranges_.size() || ranges_[range_].begin > at) return 0;
  return static_cast<size_t>(ranges_[range_].end - base_);
}

bool SpecialTokens::Cursor::IsApart(size_t begin, size_t end) const {
  if (begin > 0) {
    size_t at = CharacterBefore(text_, begin);
    if (IsWordCharacter(DecodeUtf8(text_, &at))) return false;
  }
  return end == text_.size() || !IsWordCharacter(DecodeUtf8(text_, &end));
}

std::optional<SpecialTokens::Match> SpecialTokens::Cursor::Next() {
  if (tokens_.empty()) return std::nullopt;
  while (at_ < text_.size()) {
    if (!tokens_.starts_[static_cast<unsigned char>(text_[at_])]) {
      ++at_;
      continue;
    }
    const Token* token = tokens_.LongestAt(text_, at_, RangeEnd());
    if (token == nullptr) {
      ++at_;
      continue;
    }
    size_t begin = at_;
    size_t end = at_ + token->text.size();
    at_ = end;
    if (token->single_word && !IsApart(begin, end)) continue;
    if (token->lstrip) begin = SkipSpaceLeft(text_, begin, done_);
    // White space that the last match took needs no second look.
    if (token->rstrip) end = end < done_ ? done_ : SkipSpaceRight(text_, end);
    if (begin >= end) continue;  // white space, all of which the last match took
    done_ = end;
    return Match{static_cast<int64_t>(begin), static_cast<int64_t>(end), token->id};
  }
  return std::nullopt;
}

}  // namespace trine
