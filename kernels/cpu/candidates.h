// The sampler's share of a backend: penalties, noise and the best few of one row of logits.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/backend.h"

namespace trine::cpu {

// One row of Backend::TopCandidates; out [spec.count].
void SelectCandidates(std::span<float> logits, int32_t first_id, const uint8_t* allowed,
                      const CandidateSpec& spec, Candidate* out);

}  // namespace trine::cpu
