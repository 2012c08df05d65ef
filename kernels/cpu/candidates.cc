#include "kernels/cpu/candidates.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>

#include "kernels/gumbel.h"

namespace trine::cpu {
namespace {

// Finite, unless the token is banned or must not be drawn: then it stays -infinity.
float Changed(float logit, const LogitChange& change, const CandidateSpec& spec) {
  double x = logit + change.bias;
  if (x == -INFINITY) return -INFINITY;
  if (change.count > 0) {
    x = x > 0 ? x / spec.repeat_penalty : x * spec.repeat_penalty;
    x -= spec.presence_penalty + double{spec.frequency_penalty} * change.count;
  }
  return static_cast<float>(std::clamp<double>(x, -FLT_MAX, FLT_MAX));
}

// The best of candidates that come with ascending ids: a heap whose front is the worst of them.
class Best {
 public:
  explicit Best(std::span<Candidate> places)
      : places_(places), worst_(places.empty() ? INFINITY : -INFINITY) {}

  // Whether one with this key, and an id beyond all before it, belongs to them.
  bool Takes(double key) const { return size_ < std::ssize(places_) || key > worst_; }

  // Whether any of these keys does.
  bool TakesAny(std::span<const float> keys) const {
    unsigned any = size_ < std::ssize(places_) ? 1 : 0;
    const auto worst = static_cast<float>(worst_);  // as exact as the keys are
    for (const float key : keys) any |= key > worst ? 1u : 0u;
    return any != 0;
  }

  void Add(const Candidate& candidate) {
    if (size_ == std::ssize(places_)) {
      std::pop_heap(places_.begin(), places_.end(), CandidateBefore);
      --size_;
    }
    places_[static_cast<size_t>(size_++)] = candidate;
    std::push_heap(places_.begin(), places_.begin() + size_, CandidateBefore);
    worst_ = places_[0].key;
  }

  void Sort() {
    std::sort_heap(places_.begin(), places_.begin() + size_, CandidateBefore);
    std::fill(places_.begin() + size_, places_.end(), Candidate{});
  }

 private:
  const std::span<Candidate> places_;
  int64_t size_ = 0;
  double worst_;
};

// Adds what belongs to the best of a block: changed logits of tokens from first_id on; what the
// model gave; which may be drawn.
void AddBlock(std::span<const float> values, int32_t first_id, const float* logits,
              const uint8_t* allowed, const CandidateSpec& spec, Best& best) {
  constexpr size_t kGroup = 32;  // tokens that are passed over at once
  const bool noisy = spec.temperature > 0;
  for (size_t begin = 0; begin < values.size(); begin += kGroup) {
    const auto group = values.subspan(begin, std::min(kGroup, values.size() - begin));
    if (!noisy && !best.TakesAny(group)) continue;
    for (size_t i = begin; i < begin + group.size(); ++i) {
      const int32_t id = first_id + static_cast<int32_t>(i);
      double key = values[i];
      if (noisy) {
        key = key / spec.temperature + GumbelNoise(spec.seed, spec.choice, spec.position, id);
      }
      if (best.Takes(key) && allowed[i] != 0) best.Add({id, logits[i], key});
    }
  }
}

}  // namespace

void SelectCandidates(std::span<const float> logits, int32_t first_id, const uint8_t* allowed,
                      const CandidateSpec& spec, Candidate* out, LogSum* sums) {
  Best best({out, static_cast<size_t>(spec.count)});
  auto change = std::partition_point(spec.changes.begin(), spec.changes.end(),
                                     [&](const LogitChange& c) { return c.id < first_id; });
  std::array<float, kLogSumBlock> values;  // of a block, changed
  for (size_t begin = 0; begin < logits.size(); begin += values.size()) {
    const size_t size = std::min(values.size(), logits.size() - begin);
    const int32_t first = first_id + static_cast<int32_t>(begin);
    for (size_t i = 0; i < size; ++i) {
      values[i] = allowed[begin + i] != 0 ? logits[begin + i] : -INFINITY;
    }
    for (; change != spec.changes.end() && change->id < first + static_cast<int32_t>(size);
         ++change) {
      float& value = values[static_cast<size_t>(change->id - first)];
      value = Changed(value, *change, spec);
    }
    if (spec.log_sums) *sums++ = SumBlock({values.data(), size});
    AddBlock({values.data(), size}, first, logits.data() + begin, allowed + begin, spec, best);
  }
  best.Sort();
  if (spec.target < 0) return;
  const int64_t at = int64_t{spec.target} - first_id;
  Candidate& target = out[spec.count];
  target = {};
  if (at < 0 || at >= std::ssize(logits)) return;
  const auto i = static_cast<size_t>(at);
  target = {spec.target, allowed[i] != 0 ? logits[i] : -INFINITY, 0};
}

}  // namespace trine::cpu
