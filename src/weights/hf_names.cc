#include "src/weights/hf_names.h"

#include <algorithm>

namespace trine {
namespace {

constexpr HfClass kClasses[] = {
    {"Qwen3_5ForCausalLM", "qwen3_5_text", "qwen35"},
    {"Qwen3_5ForConditionalGeneration", "qwen3_5_text", "qwen35"},
    {"Qwen3ForCausalLM", "qwen3", "qwen3"},
    {"Qwen2ForCausalLM", "qwen2", "qwen2"},
    {"LlamaForCausalLM", "llama", "llama"},
};

struct Rule {
  const char* gguf;
  const char* hf;
  bool norm = false;           // RMS norm: kLessOne in qwen35, whose classes multiply by 1 + weight
  const char* only = nullptr;  // architecture
  StoredAs stored_as = StoredAs::kValue;
};

// Behind "model." or what stands for it; and behind nothing.
constexpr Rule kModelRules[] = {
    {"token_embd.weight", "embed_tokens.weight"},
    {"output_norm.weight", "norm.weight", /*norm=*/true},
};
constexpr Rule kHeadRule = {"output.weight", "lm_head.weight"};

// Behind "blk.N." and "layers.N.".
constexpr Rule kLayerRules[] = {
    {"attn_norm.weight", "input_layernorm.weight", /*norm=*/true},
    {"post_attention_norm.weight", "post_attention_layernorm.weight", /*norm=*/true, "qwen35"},
    {"ffn_norm.weight", "post_attention_layernorm.weight", /*norm=*/true},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"attn_output.bias", "self_attn.o_proj.bias"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", /*norm=*/true},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", /*norm=*/true},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
    {"attn_qkv.weight", "linear_attn.in_proj_qkv.weight", false, "qwen35"},
    {"attn_gate.weight", "linear_attn.in_proj_z.weight", false, "qwen35"},
    {"ssm_alpha.weight", "linear_attn.in_proj_a.weight", false, "qwen35"},
    {"ssm_beta.weight", "linear_attn.in_proj_b.weight", false, "qwen35"},
    {"ssm_conv1d.weight", "linear_attn.conv1d.weight", false, "qwen35"},
    {"ssm_a", "linear_attn.A_log", false, "qwen35", StoredAs::kLogOfNegative},
    {"ssm_dt.bias", "linear_attn.dt_bias", false, "qwen35"},
    {"ssm_norm.weight", "linear_attn.norm.weight", false, "qwen35"},
    {"ssm_out.weight", "linear_attn.out_proj.weight", false, "qwen35"},
};

// The last is the one that is written.
constexpr std::string_view kModelPrefixes[] = {"model.language_model.", "language_model.model.",
                                               "model."};

// Cuts a layer's number and the dot behind it off the front of `name`.
std::optional<std::string> TakeNumber(std::string_view& name) {
  const size_t dot = name.find('.');
  if (dot == 0 || dot == std::string_view::npos || dot > 6) return {};
  std::string number(name.substr(0, dot));
  if (!std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    return {};
  }
  name.remove_prefix(dot + 1);
  return number;
}

bool TakePrefix(std::string_view& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  return true;
}

// The first rule of an architecture for a name, of which `side` picks the one that is known.
template <size_t n>
const Rule* Match(const Rule (&rules)[n], std::string_view architecture, std::string_view name,
                  const char* Rule::*side) {
  const auto* found = std::find_if(std::begin(rules), std::end(rules), [&](const Rule& rule) {
    return name == rule.*side && (rule.only == nullptr || architecture == rule.only);
  });
  return found == std::end(rules) ? nullptr : found;
}

StoredAs KeptAs(const Rule& rule, std::string_view architecture) {
  return rule.norm && architecture == "qwen35" ? StoredAs::kLessOne : rule.stored_as;
}

}  // namespace

const HfClass* FindHfClass(std::string_view name) {
  for (const HfClass& known : kClasses) {
    if (name == known.name) return &known;
  }
  return nullptr;
}

const HfClass* HfClassFor(std::string_view architecture) {
  for (const HfClass& known : kClasses) {
    if (architecture == known.architecture) return &known;
  }
  return nullptr;
}

std::string KnownHfClasses() {
  std::string list;
  for (const HfClass& known : kClasses)
    list += (list.empty() ? "" : ", ") + std::string(known.name);
  return list;
}

std::optional<HfName> ToGguf(std::string_view architecture, std::string_view hf_name) {
  if (hf_name == kHeadRule.hf) return HfName{kHeadRule.gguf};
  const bool in_model = std::any_of(std::begin(kModelPrefixes), std::end(kModelPrefixes),
                                    [&](auto prefix) { return TakePrefix(hf_name, prefix); });
  if (!in_model) return {};
  if (const Rule* rule = Match(kModelRules, architecture, hf_name, &Rule::hf)) {
    return HfName{rule->gguf, KeptAs(*rule, architecture)};
  }
  if (!TakePrefix(hf_name, "layers.")) return {};
  const std::optional<std::string> layer = TakeNumber(hf_name);
  const Rule* rule = layer ? Match(kLayerRules, architecture, hf_name, &Rule::hf) : nullptr;
  if (rule == nullptr) return {};
  return HfName{"blk." + *layer + "." + rule->gguf, KeptAs(*rule, architecture)};
}

std::optional<HfName> ToHf(std::string_view architecture, std::string_view gguf_name) {
  if (gguf_name == kHeadRule.gguf) return HfName{kHeadRule.hf};
  const std::string prefix(std::end(kModelPrefixes)[-1]);
  if (const Rule* rule = Match(kModelRules, architecture, gguf_name, &Rule::gguf)) {
    return HfName{prefix + rule->hf, KeptAs(*rule, architecture)};
  }
  if (!TakePrefix(gguf_name, "blk.")) return {};
  const std::optional<std::string> layer = TakeNumber(gguf_name);
  const Rule* rule = layer ? Match(kLayerRules, architecture, gguf_name, &Rule::gguf) : nullptr;
  if (rule == nullptr) return {};
  return HfName{prefix + "layers." + *layer + "." + rule->hf, KeptAs(*rule, architecture)};
}

bool IsOutsideTextModel(std::string_view hf_name) {
  return hf_name.starts_with("mtp.") || hf_name.starts_with("model.visual.") ||
         hf_name.starts_with("visual.") || hf_name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace trine
