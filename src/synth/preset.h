// Presets: the published models whose shapes synth reproduces. Plain numbers; what tensors follow
// from them is in model_layout.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/tensor.h"
#include "src/core/result.h"

namespace trine {

// Gated DeltaNet layers are the same in all qwen35 presets.
struct DeltaNetShape {
  static constexpr int64_t kKeyHeads = 16, kValueHeads = 48, kHeadDim = 128, kConvTaps = 4;
  static constexpr int64_t kValueWidth = kValueHeads * kHeadDim;
  static constexpr int64_t kConvWidth = 2 * kKeyHeads * kHeadDim + kValueWidth;
  static constexpr int kAttentionInterval = 4;  // of 4 layers the last has full attention
};

struct Preset {
  const char* name;
  const char* architecture;  // qwen35 or qwen3
  DType type;                // of the matrices, unless --type says otherwise
  int layers;
  int64_t hidden, ffn;
  int64_t q_heads, kv_heads, head_dim;
  int64_t vocab, context;
  double rope_base;
  bool tied = false;        // no output.weight
  bool rotated = false;     // Hadamard metadata
  bool same_gates = false;  // ssm_alpha and ssm_beta have the matrices' type, not BF16
  bool yarn = false;        // factor 4 over an original context of 16384 tokens

  constexpr bool hybrid() const { return std::string_view(architecture) == "qwen35"; }
};

// "a, b, c"
std::string PresetNames();

// The preset lives as long as the program. An unknown name: an error of code kUsage that lists the
// known ones.
Result<const Preset*> FindPreset(const std::string& name);

// A type that synth can write, from its name in lower case; empty: `fallback`. Another one: an
// error of code kUsage that lists the possible ones.
Result<DType> FindSynthType(const std::string& name, DType fallback);
std::string SynthTypeNames();

}  // namespace trine
