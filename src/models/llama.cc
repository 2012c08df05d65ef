// llama (Touvron et al. 2023): rope pairs as the container orders the rows of q and k; attention
// biases where a file has them.
#include "src/models/decoder.h"

namespace trine {

std::unique_ptr<Model> BuildLlama(const RankPlan& plan, WeightLoader& loader,
                                  RankContext& context) {
  const RotaryRowOrder rows = loader.store().conventions().llama_rows;
  return BuildDecoder(
      plan, loader, context,
      {.rope_pairs = rows == RotaryRowOrder::kAdjacent ? RopePairs::kAdjacent : RopePairs::kHalves,
       .attention = {.input_bias = Bias::kOptional, .output_bias = Bias::kOptional}});
}

}  // namespace trine
