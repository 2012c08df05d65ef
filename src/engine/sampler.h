// The sampler: what to ask the vocabulary shards for, and which token follows, given what they
// answered. Pure functions of their arguments, so the same seed gives the same text whatever ran
// beside it.
//
// Order of the filters, as in llama.cpp: bias and penalties (on the shards), top-k, typical, top-p,
// min-p, temperature. A draw is the argmax of logit / T + Gumbel noise keyed by (seed, choice,
// position, token), so a draw without filters needs one candidate a shard, and one with top-k needs
// k. Tokens of equal logit rank by their ids, the lower first. If every token is banned, the first
// is drawn.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/core/result.h"
#include "src/engine/step_command.h"

namespace trine {

struct TokenBias {
  int32_t id = 0;
  float bias = 0;  // added to the logit; -infinity bans the token
};

struct SamplingParams {
  float temperature = 0.8f;     // <= 0: greedy, the filters do not matter
  int32_t top_k = 40;           // <= 0: off
  float typical_p = 1.0f;       // >= 1: off (locally typical, Meister et al. 2022)
  float top_p = 0.95f;          // >= 1: off
  float min_p = 0.05f;          // <= 0: off
  float repeat_penalty = 1.0f;  // 1: off
  int32_t repeat_last_n = 64;   // tokens that the penalties look back on; 0: off, -1: all
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::vector<TokenBias> logit_bias{};  // those of one id add up
  int32_t min_tokens = 0;               // no stop id is drawn before this many tokens
  uint64_t seed = 0;
  int32_t choice = 0;  // which of several texts for one prompt and seed; each draws on its own
  // Log-probabilities of the generated tokens, and of the prompt's, each with those of the
  // likeliest tokens in its place, this many; -1: none. They are the model's own: log-softmax of
  // its logits, over all tokens that may be drawn, before bias, penalties, filters and temperature.
  int32_t top_logprobs = -1;
  int32_t prompt_logprobs = -1;
};

// An error names the parameter, its value and what would be right.
Status CheckSampling(const SamplingParams& params, int64_t vocab);

// A sequence whose next token is to be sampled.
struct TextSoFar {
  std::span<const int32_t> tokens;  // the prompt, then what was generated
  int64_t prompt = 0;               // of them
  std::span<const int32_t> stop;    // ids that end the text
};

// What to ask for, except LogitRow::row; the row's changes are appended to `changes`.
LogitRow MakeLogitRow(const SamplingParams& params, const TextSoFar& text, int64_t vocab,
                      std::vector<LogitChange>& changes);
// The same for the log-probability of `token`, the prompt's next.
LogitRow MakePromptRow(const SamplingParams& params, int32_t token, int64_t vocab);

// Whether the row's filters would keep all its candidates, and so perhaps tokens behind them.
bool KeepsAll(const LogitRow& row, const RowResult& result);

// The token at `position`, the text's length so far.
Candidate PickCandidate(const RowResult& result, const SamplingParams& params, int32_t position);

struct TokenLogprob {
  int32_t id = -1;
  float logprob = 0;  // natural; -infinity for a token that must not be drawn
};
struct TokenLogprobs {
  TokenLogprob token;             // id -1: not asked for
  std::vector<TokenLogprob> top;  // best first
};
// token: the one that was drawn, or the row's target.
TokenLogprobs MakeLogprobs(const RowResult& result, const Candidate& token);

}  // namespace trine
