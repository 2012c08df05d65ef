#include "src/text/character_joins.h"

#include "src/text/utf8.h"

namespace trine {

void CharacterJoins::AddToken(std::string_view token) {
  char32_t left = 0;
  for (size_t at = 0; at < token.size();) {
    const bool first = at == 0;
    const char32_t right = DecodeUtf8(token, &at);
    if (right >= known_.size()) known_.resize(right + 1);
    known_[right] = true;
    if (!first) pairs_.Insert(static_cast<int32_t>(left), static_cast<int32_t>(right), {0, 0});
    left = right;
  }
}

bool CharacterJoins::Joined(char32_t left, char32_t right) const {
  const auto known = [this](char32_t c) { return c < known_.size() && known_[c]; };
  if (!known(left) && !known(right)) return true;
  return pairs_.Find(static_cast<int32_t>(left), static_cast<int32_t>(right)).rank !=
         MergeTable::kNoRank;
}

void CharacterJoins::Split(std::string_view text,
                           const std::function<void(std::string_view piece)>& sink) const {
  if (text.empty()) return;
  size_t begin = 0;
  size_t at = 0;
  char32_t left = DecodeUtf8(text, &at);
  while (at < text.size()) {
    const size_t border = at;
    const char32_t right = DecodeUtf8(text, &at);
    if (!Joined(left, right)) {
      sink(text.substr(begin, border - begin));
      begin = border;
    }
    left = right;
  }
  sink(text.substr(begin));
}

}  // namespace trine
