// The sampler: which token follows, given the candidates that the vocabulary shards sent. Pure
// functions of their arguments, so the same seed gives the same text whatever ran beside it.
//
// Order of the filters, as in llama.cpp: penalties (on the shards), top-k, top-p, min-p,
// temperature. A draw is the argmax of logit / T + Gumbel noise keyed by (seed, position, token),
// so a draw without filters needs one candidate a shard.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace trine {

struct TokenBias {
  int32_t id = 0;
  float bias = 0;
};

struct SamplingParams {
  float temperature = 0.8f;     // <= 0: greedy
  int32_t top_k = 40;           // <= 0: off
  float top_p = 0.95f;          // >= 1: off
  float min_p = 0.05f;          // <= 0: off
  float repeat_penalty = 1.0f;  // 1: off
  int32_t repeat_last_n = 64;   // tokens that the penalties look back on; 0: off, -1: all
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  float typical_p = 1.0f;                  // >= 1: off
  std::vector<TokenBias> logit_bias = {};  // added to logits; finite, or -infinity: never drawn
  int32_t min_tokens = 0;                  // before which no stop token is drawn
  uint64_t seed = 0;
};

// What to ask of each shard for a token at `position`, except the window. count is the number of
// candidates that make Pick exact.
CandidateSpec MakeCandidateSpec(const SamplingParams& params, int32_t position, int64_t vocab);

// The token. candidates: the best spec.count of the whole vocabulary, best first; at least one.
int32_t PickToken(std::span<const Candidate> candidates, const SamplingParams& params,
                  int32_t position);

}  // namespace trine
