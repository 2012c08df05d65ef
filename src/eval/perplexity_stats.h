// Perplexity and the distance between two models, from the scores of many tokens. Pure functions.
// Definitions and error formulas are those of llama.cpp's perplexity tool: an error is one standard
// error of the mean, carried through exp and sqrt to first order; tokens count as independent.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "src/eval/token_score.h"

namespace trine {

struct Estimate {
  double value = 0;
  double error = 0;  // one standard error; 0 of a single token
};

inline constexpr std::array kPercents = {0.1, 1.0, 5.0, 10.0, 50.0, 90.0, 95.0, 99.0, 99.9};

// How a model compares with the reference, token by token.
struct Comparison {
  Estimate reference;  // its perplexity
  Estimate ratio;      // perplexity / reference; its error knows that both saw the same tokens
  Estimate kl;         // mean divergence of this model from the reference
  double max_kl = 0;
  std::array<double, kPercents.size()> kl_percentiles = {};
  Estimate top1_agreement;  // share of tokens, 0 to 1
  Estimate mean_delta_p;    // of p - p_ref of the token that came
  Estimate rms_delta_p;
};

// exp of the mean nll. At least one score.
Estimate Perplexity(std::span<const TokenScore> scores);

// Of scores that have a reference; at least one.
Comparison Compare(std::span<const TokenScore> scores);

}  // namespace trine
