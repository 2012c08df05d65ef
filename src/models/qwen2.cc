// qwen2 (Yang et al. 2024): biases on q, k and v, and on the output where a file has one.
#include "src/models/decoder.h"

namespace trine {

std::unique_ptr<Model> BuildQwen2(const RankPlan& plan, WeightLoader& loader,
                                  RankContext& context) {
  return BuildDecoder(
      plan, loader, context,
      {.attention = {.input_bias = Bias::kRequired, .output_bias = Bias::kOptional}});
}

}  // namespace trine
