#include "comm/seals.h"

#include <algorithm>

#include "comm/split_mix.h"

namespace trine {
namespace {

// Sums of seals wrap.
int64_t Minus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}

}  // namespace

int64_t Seals::Of(int rank, int64_t collective) {
  const uint64_t number = (static_cast<uint64_t>(collective) << 16) + static_cast<uint64_t>(rank);
  return static_cast<int64_t>(SplitMix(number + 1));
}

int64_t Seals::Total(int64_t collective) const {
  uint64_t total = 0;
  for (int rank = 0; rank < world_.size; ++rank)
    total += static_cast<uint64_t>(Of(rank, collective));
  return static_cast<int64_t>(total);
}

// A sum that lacks a rank's seal, or has an older one in its place.
std::string Seals::Blame(int64_t collective, int64_t difference) const {
  constexpr int64_t kOld = 4096;
  for (int rank = 0; rank < world_.size; ++rank) {
    const std::string who = "rank " + std::to_string(rank);
    const int64_t whole = Of(rank, collective);
    if (difference == Minus(0, whole)) return "the contribution of " + who + " is missing";
    for (int64_t old = std::max<int64_t>(1, collective - kOld); old < collective; ++old) {
      if (difference == Minus(Of(rank, old), whole)) {
        return who + " sent again what it had sent to a collective before";
      }
    }
  }
  return "bits of a rank's contribution were changed";
}

std::string Seals::Explain(int64_t first, int64_t seal, int64_t difference) const {
  for (int64_t collective = first; collective <= collective_; ++collective) {
    const std::string where = ", collective " + std::to_string(collective - first + 1) + ": ";
    if (seal == Total(collective)) return where + Blame(collective, difference);
    for (int rank = 0; rank < world_.size; ++rank) {
      if (seal != Of(rank, collective)) continue;
      return where + "what came from rank " + std::to_string(rank) +
             " is not what it should have sent";
    }
  }
  return ": bits of a rank's contribution were changed";
}

}  // namespace trine
