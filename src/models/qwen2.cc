// qwen2 (Yang et al. 2024): biases on q, k and v, and on the output where a file has one.
#include "src/models/dense_decoder.h"

namespace trine {

std::unique_ptr<Model> BuildQwen2(const ModelConfig& config, const RankShare& share,
                                  const WeightStore& store, WeightLoader& loader,
                                  RankContext* context) {
  return BuildDenseDecoder(
      config, share, store, loader, context,
      {.attention = {.input_bias = Bias::kRequired, .output_bias = Bias::kOptional}});
}

}  // namespace trine
