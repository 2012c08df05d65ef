// qwen3 (Yang et al. 2025): RMS norms on every query and key head, no biases; the head dimension is
// its own number, not hidden / heads.
#include "src/models/decoder.h"

namespace trine {

std::unique_ptr<Model> BuildQwen3(const RankPlan& plan, WeightLoader& loader,
                                  RankContext& context) {
  return BuildDecoder(plan, loader, context, {.attention = {.qk_norm = true}});
}

}  // namespace trine
