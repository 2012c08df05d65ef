// Hugging Face's config.json to GGUF's keys and back. Sources: transformers' configuration classes;
// the keys of llama.cpp's converter.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/tensor.h"
#include "src/core/metadata.h"
#include "src/core/result.h"

namespace trine {

struct HfConfig {
  std::string architecture;    // GGUF's, e.g. "qwen35"
  Metadata metadata;           // ARCHITECTURE.* and general.architecture
  std::optional<DType> dtype;  // of the matrices, where it is declared
  bool tied = false;           // the head is the embedding
  bool biases = false;         // llama: attention has them
  int64_t vocab = 0;
};

// The text model's part of a config.json. Refuses by name what would change the numbers and is not
// supported (another activation, sliding windows, quantised weights, unknown rope scaling).
Result<HfConfig> ReadHfConfig(const std::string& path);

// The text of a config.json for the class that transformers has for the architecture, with the keys
// that `metadata` has; the inverse of the above. An error names what that class cannot say.
// rope_factors: the values of rope_freqs.weight, or none.
Result<std::string> WriteHfConfig(const HfConfig& config, const std::vector<float>& rope_factors);

}  // namespace trine
