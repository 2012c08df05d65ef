// Prompt lookup: a guess of what follows a text, from what followed its last tokens when they stood
// there before. Guesses cost no model; a step computes them beside the token that is certain, and
// the sampler says which of them were right. Sources: speculative decoding (Leviathan et al. 2023),
// prompt lookup decoding (Saxena 2023).
//
// Other sources of guesses, such as a head for multi-token prediction, would stand beside
// FindRepeat: whoever guesses, the rest of the engine sees tokens (Scheduler::Guess).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace trine {

// The place behind an earlier occurrence of the last tokens: at least three of them, as many as can
// be (up to 16), and of equals the latest place. 0: there is none. Reads `tokens` once.
size_t FindRepeat(std::span<const int32_t> tokens);

// How many tokens are worth guessing for one sequence, from how its guesses did: so many that the
// last of them is still right with a chance of 0.4. A sequence whose guesses are worse rests, and
// tries one again after ever more steps.
class GuessCount {
 public:
  // For the next step.
  int64_t Next(int64_t most);
  // Of those that were made, how many were right up to the first wrong one.
  void Learn(int64_t guessed, int64_t right);

 private:
  double chance_ = 0.6;  // that a guess is right, moving average
  int64_t rest_ = 0, next_rest_ = 8;
};

}  // namespace trine
