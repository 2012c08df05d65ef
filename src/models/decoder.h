// Decoder: the pre-norm transformer decoder that all architectures share. A layer mixes tokens by
// attention or, where ModelConfig says it is recurrent, by Gated DeltaNet, and then has SwiGLU.
// What differs between architectures is in DecoderTraits; their files say which is which.
#pragma once

#include "src/models/layers.h"

namespace trine {

struct DecoderTraits {
  RopePairs rope_pairs = RopePairs::kHalves;
  AttentionOptions attention;
  const char* ffn_norm = "ffn_norm.weight";  // of each block
};

std::unique_ptr<Model> BuildDecoder(const RankPlan& plan, WeightLoader& loader,
                                    RankContext& context, const DecoderTraits& traits);

}  // namespace trine
