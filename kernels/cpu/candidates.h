// The sampler's share of a backend: bias, penalties, noise, the best few and the log-sum-exps of
// one row of logits.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/backend.h"

namespace trine::cpu {

// One spec of Backend::TopCandidates, over `logits`, its row.
void SelectCandidates(std::span<const float> logits, int32_t first_id, const uint8_t* allowed,
                      const CandidateSpec& spec, Candidate* out, LogSum* sums);

}  // namespace trine::cpu
