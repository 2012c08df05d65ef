// llama (Touvron et al. 2023): adjacent rope pairs, because its converter permutes the rows of q
// and k so; attention biases where a file has them.
#include "src/models/dense_decoder.h"

namespace trine {

std::unique_ptr<Model> BuildLlama(const ModelConfig& config, const RankShare& share,
                                  const WeightStore& store, WeightLoader& loader,
                                  RankContext* context) {
  return BuildDenseDecoder(
      config, share, store, loader, context,
      {.rope_pairs = RopePairs::kAdjacent,
       .attention = {.input_bias = Bias::kOptional, .output_bias = Bias::kOptional}});
}

}  // namespace trine
