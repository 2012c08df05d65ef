// qwen3 (Yang et al. 2025): RMS norms on every query and key head, no biases; the head dimension is
// its own number, not hidden / heads.
#include "src/models/dense_decoder.h"

namespace trine {

std::unique_ptr<Model> BuildQwen3(const RankPlan& plan, WeightLoader& loader,
                                  RankContext& context) {
  return BuildDenseDecoder(plan, loader, context, {.attention = {.qk_norm = true}});
}

}  // namespace trine
