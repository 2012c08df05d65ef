// DenseDecoder: the pre-norm transformer decoder that llama, qwen2 and qwen3 share. What differs
// between them is in DenseTraits; their files say which is which.
#pragma once

#include "src/models/layers.h"

namespace trine {

struct DenseTraits {
  RopePairs rope_pairs = RopePairs::kHalves;
  AttentionOptions attention;
};

std::unique_ptr<Model> BuildDenseDecoder(const RankPlan& plan, WeightLoader& loader,
                                         RankContext& context, const DenseTraits& traits);

}  // namespace trine
