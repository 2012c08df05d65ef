// What a preset's file holds besides its tokenizer: the tensors, how each is filled, and the
// metadata that describes them. No weight is made here; that is random_rows.h.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/core/metadata.h"
#include "src/synth/preset.h"
#include "src/weights/weight_store.h"

namespace trine {

enum class Fill {
  kCentred,   // around 0 with the tensor's deviation
  kNorm,      // around 1: the scale of an RMS norm
  kDecay,     // -exp(A_log), exp(A_log) from 1 to 16: ssm_a
  kTimeStep,  // the bias whose softplus is a time step from 0.001 to 0.1: ssm_dt.bias
};

struct SynthTensor {
  TensorInfo info;  // name, type, shape and bytes; the writer finds the offset
  Fill fill = Fill::kCentred;
  float deviation = 0;   // standard deviation of the weights, where fill is kCentred
  bool rotated = false;  // the stored matrix is W H diag(s), see prism.hadamard.weight_names
};

// The tensors of the first `layers` layers in the order of the file, their matrices in `type`.
// Deviations keep the variance of activations near 1: 1 / sqrt(inputs), those that add to the
// residual stream also / sqrt(2 * layers). `layers` is 1 to preset.layers.
std::vector<SynthTensor> LayOutModel(const Preset& preset, DType type, int layers);

// The keys of the architecture, the rotation (signs from the seed) and general.*. `tensors` are
// those of LayOutModel.
Metadata DescribeModel(const Preset& preset, int layers, const std::vector<SynthTensor>& tensors,
                       uint64_t seed);

// The file that synth would write, without the writing: for plans.
std::unique_ptr<WeightStore> DescribeFile(const Preset& preset, DType type, int layers);

// --layers N of a preset: -1 is all of them. An error of code kUsage names the possible ones.
Result<int> LayerCount(const Preset& preset, int asked);

}  // namespace trine
