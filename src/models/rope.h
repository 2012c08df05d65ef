// Rotary position embedding: its constants, from metadata.
#pragma once

#include "kernels/backend.h"
#include "src/core/result.h"
#include "src/models/model.h"

namespace trine {

struct Rope {
  RopeParams params;   // its frequencies point into the buffer
  Buffer frequencies;  // f32 [dims / 2] radians per position
};

// Reads <arch>.rope.* (base, dimension_count, dimension_sections, scaling none, linear or yarn)
// and, if the file has it, the divisors of rope_freqs.weight (llama 3). Errors stick in the loader.
// Sources: Su et al. 2021; YaRN: Peng et al. 2023; the llama 3 divisors are made by the converter;
// sections: Bai et al. 2025, where a text token has its position in every component but the fourth.
Rope LoadRope(const ModelConfig& config, RopePairs pairs, WeightLoader& loader);

}  // namespace trine
