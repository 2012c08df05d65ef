#include "src/engine/prompt_lookup.h"

#include <algorithm>
#include <cmath>

namespace trine {
namespace {

constexpr size_t kLeastMatch = 3, kMostMatch = 16;
constexpr double kWorth = 0.4;
constexpr double kMemory = 0.9;  // of the moving average
constexpr int64_t kLongestRest = 128;

// The number of tokens that end at `a` and equal those that end at `b`; ends are exclusive, a < b.
size_t MatchBefore(std::span<const int32_t> tokens, size_t a, size_t b) {
  size_t n = 0;
  while (n < a && n < kMostMatch && tokens[a - 1 - n] == tokens[b - 1 - n]) ++n;
  return n;
}

}  // namespace

size_t FindRepeat(std::span<const int32_t> tokens) {
  const size_t size = tokens.size();
  size_t best = kLeastMatch - 1, place = 0;
  for (size_t end = size - 1; end > best && best < kMostMatch; --end) {
    if (tokens[end - 1] != tokens[size - 1]) continue;
    const size_t match = MatchBefore(tokens, end, size);
    if (match <= best) continue;
    best = match;
    place = end;
  }
  return place;
}

int64_t GuessCount::Next(int64_t most) {
  if (chance_ >= kWorth) {
    const double count = std::floor(std::log(kWorth) / std::log(std::min(chance_, 0.99)));
    return std::min(most, static_cast<int64_t>(count));
  }
  if (rest_-- > 0) return 0;
  rest_ = next_rest_;
  next_rest_ = std::min(2 * next_rest_, kLongestRest);
  return std::min<int64_t>(most, 1);
}

void GuessCount::Learn(int64_t guessed, int64_t right) {
  for (int64_t i = 0; i < right; ++i) chance_ = kMemory * chance_ + (1 - kMemory);
  if (right < guessed) chance_ *= kMemory;
  if (chance_ >= kWorth) next_rest_ = 8;
}

}  // namespace trine
