// llama (Touvron et al. 2023): adjacent rope pairs, because its converter permutes the rows of q
// and k so; attention biases where a file has them.
#include "src/models/decoder.h"

namespace trine {

std::unique_ptr<Model> BuildLlama(const RankPlan& plan, WeightLoader& loader,
                                  RankContext& context) {
  return BuildDecoder(
      plan, loader, context,
      {.rope_pairs = RopePairs::kAdjacent,
       .attention = {.input_bias = Bias::kOptional, .output_bias = Bias::kOptional}});
}

}  // namespace trine
