#include "src/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/gumbel.h"

namespace trine {
namespace {

bool Greedy(const SamplingParams& params) {
  return params.temperature <= 0 || params.top_k == 1;
}

bool Unfiltered(const SamplingParams& params) {
  return params.top_k <= 0 && params.top_p >= 1 && params.min_p <= 0;
}

// How many of the candidates survive top-p, then min-p.
size_t CountKept(std::span<const Candidate> candidates, const SamplingParams& params) {
  std::vector<double> odds;  // relative to the best
  double total = 0;
  for (const Candidate& candidate : candidates) {
    odds.push_back(std::exp(static_cast<double>(candidate.logit) - candidates[0].logit));
    total += odds.back();
  }
  size_t kept = candidates.size();
  if (params.top_p < 1) {
    double mass = 0;
    kept = 0;
    while (kept < odds.size() && (kept == 0 || mass < params.top_p * total)) mass += odds[kept++];
  }
  while (kept > 1 && odds[kept - 1] < params.min_p) --kept;
  return kept;
}

}  // namespace

CandidateSpec MakeCandidateSpec(const SamplingParams& params, int32_t position, int64_t vocab) {
  CandidateSpec spec;
  spec.repeat_penalty = params.repeat_penalty;
  spec.presence_penalty = params.presence_penalty;
  spec.frequency_penalty = params.frequency_penalty;
  spec.position = position;
  spec.count = 1;
  if (Greedy(params)) return spec;
  if (Unfiltered(params)) {
    spec.perturb = true;
    spec.temperature = params.temperature;
    spec.seed = params.seed;
    return spec;
  }
  const int64_t wanted = params.top_k > 0 ? params.top_k : vocab;
  spec.count = static_cast<int32_t>(std::min(wanted, vocab));
  return spec;
}

int32_t PickToken(std::span<const Candidate> candidates, const SamplingParams& params,
                  int32_t position) {
  if (Greedy(params) || Unfiltered(params)) return candidates[0].id;
  int32_t best = candidates[0].id;
  double best_key = -INFINITY;
  for (const Candidate& candidate : candidates.first(CountKept(candidates, params))) {
    const double key = static_cast<double>(candidate.logit) / params.temperature +
                       GumbelNoise(params.seed, position, candidate.id);
    if (key > best_key || (key == best_key && candidate.id < best)) {
      best = candidate.id;
      best_key = key;
    }
  }
  return best;
}

}  // namespace trine
