// What the logits of one row say of the token that came next: its log-likelihood, and the
// Kullback-Leibler divergence from another model's logits of the same row.
//
// Everything is in double and in a fixed order (kernels/log_sum_exp.h), so a row's score does not
// depend on threads or instruction set. Padding of the vocabulary counts like any other row of it.
// V: vocabulary rows.
#pragma once

#include <cstdint>
#include <span>

namespace trine {

// Nats throughout. The last three: only if there is a reference.
struct TokenScore {
  double nll = 0;  // -log p(token); not a number if any logit, of either row, is not finite
  double reference_nll = 0;
  double kl = 0;          // sum of p_ref (log p_ref - log p) over the vocabulary
  bool same_top = false;  // the likeliest token, the first of equals, is the same
};

// logits, reference [V]; 0 <= token < V.
TokenScore ScoreToken(std::span<const float> logits, int32_t token);
TokenScore ScoreToken(std::span<const float> logits, std::span<const float> reference,
                      int32_t token);

}  // namespace trine
