#include "src/engine/sampler.h"

#include <algorithm>
#include <cmath>

#include "kernels/gumbel.h"

namespace trine {
namespace {

// Candidates of a row without top-k whose filters may need fewer than all tokens.
constexpr int64_t kSearched = 256;

using Ranked = std::span<const Candidate>;  // best first

bool Greedy(const SamplingParams& params) {
  return params.temperature <= 0 || params.top_k == 1;
}

bool Unfiltered(const SamplingParams& params) {
  return params.top_k <= 0 && params.typical_p >= 1 && params.top_p >= 1 && params.min_p <= 0;
}

// Probability of a candidate, relative to the best.
double Odds(Ranked ranked, size_t i) {
  return ExpBelowOne(ranked[i].key - ranked[0].key);
}

double SumOdds(Ranked ranked) {
  double sum = 0;
  for (size_t i = 0; i < ranked.size(); ++i) sum += Odds(ranked, i);
  return sum;
}

// Not those that are banned, unless all are.
Ranked Drawable(Ranked ranked) {
  while (ranked.size() > 1 && ranked.back().key == -INFINITY)
    ranked = ranked.first(ranked.size() - 1);
  return ranked;
}

// The tokens whose surprise is closest to its mean, the entropy, until their mass is p. Surprise
// grows along the ranking, so they are neighbours in it: the next token is the nearest one on
// either side of the entropy, the likelier one of two equally near. Tokens of equal logit stay
// together. (Meister et al. 2022)
Ranked Typical(Ranked ranked, double p) {
  const double total = SumOdds(ranked), log_total = Log(total);
  const auto surprise = [&](size_t i) { return log_total - (ranked[i].key - ranked[0].key); };
  double entropy = 0;
  for (size_t i = 0; i < ranked.size(); ++i) entropy += Odds(ranked, i) * surprise(i);
  entropy /= total;
  size_t begin = 0;
  while (begin < ranked.size() && surprise(begin) < entropy) ++begin;
  size_t end = begin;  // [begin, end) is kept
  double mass = 0;
  while (end - begin < ranked.size() && (begin == end || mass < p * total)) {
    const bool likelier = end == ranked.size() ||
                          (begin > 0 && entropy - surprise(begin - 1) <= surprise(end) - entropy);
    mass += Odds(ranked, likelier ? --begin : end++);
  }
  while (begin > 0 && ranked[begin - 1].key == ranked[begin].key) --begin;
  while (end < ranked.size() && ranked[end].key == ranked[end - 1].key) ++end;
  return ranked.subspan(begin, end - begin);
}

// How many survive top-p, then min-p. total: the sum of all odds, of tokens behind these too.
size_t CountKept(Ranked ranked, double total, double top_p, double min_p) {
  size_t kept = 0;
  double mass = 0;
  while (kept < ranked.size() && (kept == 0 || top_p >= 1 || mass < top_p * total)) {
    const double odds = Odds(ranked, kept);
    if (kept > 0 && odds < min_p) break;
    mass += odds;
    ++kept;
  }
  return kept;
}

void AddPenalties(const SamplingParams& params, std::span<const int32_t> tokens,
                  std::vector<LogitChange>& changes) {
  const bool penalised =
      params.repeat_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0;
  if (!penalised) return;
  const int64_t size = std::ssize(tokens);
  const int64_t window =
      params.repeat_last_n < 0 ? size : std::min<int64_t>(params.repeat_last_n, size);
  for (const int32_t id : tokens.last(static_cast<size_t>(window))) changes.push_back({id, 1, 0});
}

// Sorts the changes from `first` on by id; those of one id become one.
void Combine(size_t first, std::vector<LogitChange>& changes) {
  std::sort(changes.begin() + static_cast<int64_t>(first), changes.end(),
            [](const LogitChange& a, const LogitChange& b) {
              return a.id < b.id || (a.id == b.id && a.bias < b.bias);
            });
  size_t kept = first;
  for (size_t i = first; i < changes.size(); ++i) {
    if (kept > first && changes[kept - 1].id == changes[i].id) {
      changes[kept - 1].count += changes[i].count;
      changes[kept - 1].bias += changes[i].bias;
    } else {
      changes[kept++] = changes[i];
    }
  }
  changes.resize(kept);
}

// Sets what of the vocabulary the filters need to see.
void SetCount(const SamplingParams& params, int64_t vocab, LogitRow& row) {
  CandidateSpec& spec = row.spec;
  int64_t count = 1;
  if (Greedy(params)) {
    // The best one.
  } else if (Unfiltered(params)) {
    spec.temperature = params.temperature;
  } else if (params.top_k > 0) {
    count = params.top_k;
  } else if (params.typical_p < 1) {
    count = vocab;
  } else {
    count = kSearched;
    spec.log_sums = params.top_p < 1;
    if (count < vocab) {
      row.top_p = params.top_p;
      row.min_p = params.min_p;
    }
  }
  spec.count = static_cast<int32_t>(std::min(count, vocab));
}

TokenLogprob ToLogprob(const Candidate& candidate, double log_sum) {
  return {candidate.id, static_cast<float>(double{candidate.logit} - log_sum)};
}

}  // namespace

LogitRow MakeLogitRow(const SamplingParams& params, const TextSoFar& text, int64_t vocab,
                      std::vector<LogitChange>& changes) {
  LogitRow row;
  row.spec.repeat_penalty = params.repeat_penalty;
  row.spec.presence_penalty = params.presence_penalty;
  row.spec.frequency_penalty = params.frequency_penalty;
  row.spec.seed = params.seed;
  row.spec.choice = params.choice;
  row.spec.position = static_cast<int32_t>(text.tokens.size());
  SetCount(params, vocab, row);
  row.logprobs = static_cast<int32_t>(std::min<int64_t>(params.top_logprobs, vocab));

  const size_t first = changes.size();
  AddPenalties(params, text.tokens, changes);
  for (const TokenBias& bias : params.logit_bias) changes.push_back({bias.id, 0, bias.bias});
  if (std::ssize(text.tokens) - text.prompt < params.min_tokens) {
    for (const int32_t id : text.stop) changes.push_back({id, 0, -INFINITY});
  }
  Combine(first, changes);
  row.changes = static_cast<int32_t>(changes.size() - first);
  return row;
}

LogitRow MakePromptRow(const SamplingParams& params, int32_t token, int64_t vocab) {
  LogitRow row;
  row.spec.count = 0;
  row.logprobs = static_cast<int32_t>(std::min<int64_t>(params.prompt_logprobs, vocab));
  row.target = token;
  return row;
}

bool KeepsAll(const LogitRow& row, const RowResult& result) {
  const Ranked drawable = Drawable(result.candidates);
  return CountKept(drawable, result.sum.sum, row.top_p, row.min_p) == result.candidates.size();
}

Candidate PickCandidate(const RowResult& result, const SamplingParams& params, int32_t position) {
  Ranked kept = Drawable(result.candidates);
  if (Greedy(params) || Unfiltered(params) || kept[0].key == -INFINITY) return kept[0];
  const bool whole = params.top_k <= 0 && params.typical_p >= 1;
  if (params.typical_p < 1) kept = Typical(kept, params.typical_p);
  const double total = params.top_p >= 1 ? 0 : whole ? result.sum.sum : SumOdds(kept);
  kept = kept.first(CountKept(kept, total, params.top_p, params.min_p));
  Candidate best = kept[0];
  double best_key = -INFINITY;
  for (const Candidate& candidate : kept) {
    const double key = candidate.key / params.temperature +
                       GumbelNoise(params.seed, params.choice, position, candidate.id);
    if (key > best_key || (key == best_key && candidate.id < best.id)) {
      best = candidate;
      best_key = key;
    }
  }
  return best;
}

TokenLogprobs MakeLogprobs(const RowResult& result, const Candidate& token) {
  const double log_sum = LogOf(result.logit_sum);
  TokenLogprobs logprobs;
  logprobs.token = ToLogprob(token, log_sum);
  logprobs.top.reserve(result.likeliest.size());
  for (const Candidate& candidate : result.likeliest) {
    logprobs.top.push_back(ToLogprob(candidate, log_sum));
  }
  return logprobs;
}

Status CheckSampling(const SamplingParams& params, int64_t vocab) {
  const std::pair<const char*, float> numbers[] = {{"temperature", params.temperature},
                                                   {"typical_p", params.typical_p},
                                                   {"top_p", params.top_p},
                                                   {"min_p", params.min_p},
                                                   {"repeat_penalty", params.repeat_penalty},
                                                   {"presence_penalty", params.presence_penalty},
                                                   {"frequency_penalty", params.frequency_penalty}};
  for (const auto& [name, value] : numbers) {
    if (!std::isfinite(value)) {
      return BadInput(std::string(name) + " is " + std::to_string(value) +
                      "; give a finite number");
    }
  }
  if (params.repeat_penalty <= 0) {
    return BadInput("repeat_penalty is " + std::to_string(params.repeat_penalty) +
                    "; give a number above 0, 1 to turn it off");
  }
  for (const TokenBias& bias : params.logit_bias) {
    if (bias.id < 0 || bias.id >= vocab) {
      return BadInput("logit_bias has token " + std::to_string(bias.id) + ", the vocabulary " +
                      std::to_string(vocab) + " tokens; give ids from 0 to " +
                      std::to_string(vocab - 1));
    }
    if (std::isnan(bias.bias) || bias.bias == INFINITY) {
      return BadInput("logit_bias of token " + std::to_string(bias.id) + " is " +
                      std::to_string(bias.bias) + "; give a finite number, or -inf to ban it");
    }
  }
  return {};
}

}  // namespace trine
