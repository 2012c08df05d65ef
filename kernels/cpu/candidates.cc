#include "kernels/cpu/candidates.h"

#include <algorithm>

#include "kernels/gumbel.h"

namespace trine::cpu {
namespace {

void Penalise(std::span<float> logits, int32_t first_id, const CandidateSpec& spec) {
  for (const TokenCount& seen : spec.window) {
    const int64_t i = int64_t{seen.id} - first_id;
    if (i < 0 || i >= static_cast<int64_t>(logits.size())) continue;
    float& logit = logits[static_cast<size_t>(i)];
    logit = logit > 0 ? logit / spec.repeat_penalty : logit * spec.repeat_penalty;
    logit -= spec.presence_penalty + spec.frequency_penalty * static_cast<float>(seen.count);
  }
}

}  // namespace

void SelectCandidates(std::span<float> logits, int32_t first_id, const uint8_t* allowed,
                      const CandidateSpec& spec, Candidate* out) {
  Penalise(logits, first_id, spec);
  std::span<Candidate> heap(out, static_cast<size_t>(spec.count));
  size_t size = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (allowed[i] == 0) continue;
    const int32_t id = first_id + static_cast<int32_t>(i);
    Candidate candidate{id, logits[i], logits[i]};
    if (spec.perturb) {
      candidate.key = static_cast<double>(logits[i]) / spec.temperature +
                      GumbelNoise(spec.seed, spec.position, id);
    }
    if (size < heap.size()) {
      heap[size++] = candidate;
      std::push_heap(heap.begin(), heap.begin() + static_cast<int64_t>(size), CandidateBefore);
    } else if (CandidateBefore(candidate, heap[0])) {
      std::pop_heap(heap.begin(), heap.end(), CandidateBefore);
      heap.back() = candidate;
      std::push_heap(heap.begin(), heap.end(), CandidateBefore);
    }
  }
  std::sort_heap(heap.begin(), heap.begin() + static_cast<int64_t>(size), CandidateBefore);
  std::fill(heap.begin() + static_cast<int64_t>(size), heap.end(), Candidate{});
}

}  // namespace trine::cpu
