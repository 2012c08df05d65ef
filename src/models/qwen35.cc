// qwen35 (Qwen3.5 to 3.8, and Ternary-Bonsai): most layers are Gated DeltaNet, every few one is
// attention with gated output; both are followed by SwiGLU. Source: transformers' qwen3_5, and the
// GGUF names of llama.cpp's qwen35. Blocks for multi-token prediction are left out.
#include "src/models/decoder.h"

namespace trine {
namespace {

// Which blocks are recurrent: a list of all of them, or all but every interval-th.
Result<std::vector<bool>> ReadRecurrent(const Metadata& meta, int64_t blocks) {
  const std::string key = "qwen35.attention.recurrent_layers";
  TRINE_ASSIGN(const std::vector<bool>* listed, meta.Bools(key));
  if (listed != nullptr) {
    if (std::ssize(*listed) != blocks) {
      return BadInput("'" + key + "' has " + std::to_string(listed->size()) +
                      " entries for 'qwen35.block_count' " + std::to_string(blocks));
    }
    return *listed;
  }
  const std::string interval_key = "qwen35.full_attention_interval";
  TRINE_ASSIGN(const int64_t interval, meta.IntOr(interval_key, 4));
  if (interval < 1 || interval > blocks) {
    return BadInput("'" + interval_key + "' is " + std::to_string(interval) +
                    "; 1 to 'qwen35.block_count' " + std::to_string(blocks) + " expected");
  }
  std::vector<bool> recurrent;
  for (int64_t i = 0; i < blocks; ++i) recurrent.push_back((i + 1) % interval != 0);
  return recurrent;
}

}  // namespace

Status ReadQwen35Config(const Metadata& meta, ModelConfig& config) {
  TRINE_ASSIGN(const int64_t ignored, meta.IntOr("qwen35.nextn_predict_layers", 0));
  if (ignored < 0 || ignored >= config.layers) {
    return BadInput("'qwen35.nextn_predict_layers' is " + std::to_string(ignored) +
                    "; 0 to less than 'qwen35.block_count' " + std::to_string(config.layers) +
                    " expected");
  }
  config.output_gate = true;
  TRINE_ASSIGN(config.recurrent, ReadRecurrent(meta, config.layers));
  config.ignored_blocks = static_cast<int>(ignored);
  config.layers -= config.ignored_blocks;
  config.recurrent.resize(static_cast<size_t>(config.layers));
  TRINE_ASSIGN(config.key_heads, PositiveKey(meta, "qwen35.ssm.group_count"));
  TRINE_ASSIGN(config.value_heads, PositiveKey(meta, "qwen35.ssm.time_step_rank"));
  TRINE_ASSIGN(config.delta_dim, PositiveKey(meta, "qwen35.ssm.state_size"));
  TRINE_ASSIGN(config.conv_taps, PositiveKey(meta, "qwen35.ssm.conv_kernel"));
  TRINE_ASSIGN(const int64_t inner, PositiveKey(meta, "qwen35.ssm.inner_size"));
  if (config.value_heads % config.key_heads != 0) {
    return BadInput("'qwen35.ssm.time_step_rank' " + std::to_string(config.value_heads) +
                    " is not a multiple of 'qwen35.ssm.group_count' " +
                    std::to_string(config.key_heads));
  }
  if (inner != config.value_heads * config.delta_dim) {
    return BadInput("'qwen35.ssm.inner_size' is " + std::to_string(inner) +
                    "; time_step_rank x state_size is " +
                    std::to_string(config.value_heads * config.delta_dim));
  }
  if (config.delta_dim > kMaxHeadDim) {
    return BadInput("'qwen35.ssm.state_size' is " + std::to_string(config.delta_dim) + "; up to " +
                    std::to_string(kMaxHeadDim) + " is supported");
  }
  if (config.conv_taps < 2 || config.conv_taps > kMaxConvTaps) {
    return BadInput("'qwen35.ssm.conv_kernel' is " + std::to_string(config.conv_taps) + "; 2 to " +
                    std::to_string(kMaxConvTaps) + " is supported");
  }
  return {};
}

std::unique_ptr<Model> BuildQwen35(const RankPlan& plan, WeightLoader& loader,
                                   RankContext& context) {
  return BuildDecoder(plan, loader, context,
                      {.attention = {.qk_norm = true, .output_gate = true},
                       .ffn_norm = "post_attention_norm.weight"});
}

}  // namespace trine
