#include "src/weights/hf_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "src/core/json_fields.h"
#include "src/core/quote.h"
#include "src/core/text_file.h"
#include "src/weights/hf_names.h"
#include "src/weights/llama3_rope.h"

namespace trine {
namespace {

using nlohmann::json;

constexpr int64_t kMaxBytes = 16 << 20;

// ---- reading: one object `text`, that of the language model

class Reader {
 public:
  Reader(const JsonField& text, HfConfig& out) : text_(text), out_(out) {}

  Status Read() {
    TRINE_RETURN_IF_ERROR(RefuseOthers());
    TRINE_RETURN_IF_ERROR(Dimensions());
    TRINE_RETURN_IF_ERROR(Rope());
    return out_.architecture == "qwen35" ? Hybrid() : Status{};
  }

 private:
  void Put(const std::string& key, MetaValue value) {
    out_.metadata.Insert(out_.architecture + "." + key, std::move(value));
  }

  // An integer of the file under a key of ours.
  Status PutInt(const std::string& key, const JsonField& field) {
    TRINE_ASSIGN(const int64_t value, field.Int());
    Put(key, value);
    return {};
  }

  Status RefuseOthers() {
    const JsonField act = text_["hidden_act"];
    if (!act.is_null() && act.value() != "silu") return act.Refuse("'silu' is supported");
    for (const char* key : {"mlp_bias", "use_sliding_window"}) {
      TRINE_ASSIGN(const bool set, text_[key].BoolOr(false));
      if (set) return text_[key].Refuse("it is not supported");
    }
    TRINE_ASSIGN(out_.biases, text_["attention_bias"].BoolOr(false));
    if (out_.biases && out_.architecture.starts_with("qwen3")) {
      return text_["attention_bias"].Refuse("it is not supported");
    }
    TRINE_ASSIGN(const bool gate, text_["attn_output_gate"].BoolOr(true));
    if (!gate) return text_["attn_output_gate"].Refuse("only gated outputs are supported");
    const JsonField quantised = text_["quantization_config"];
    if (!quantised.is_null()) {
      return quantised.Refuse("only F32, F16 and BF16 weights are read; get the unquantised model");
    }
    return {};
  }

  Status Dimensions() {
    TRINE_ASSIGN(const int64_t hidden, text_["hidden_size"].Int());
    TRINE_ASSIGN(const int64_t heads, text_["num_attention_heads"].Int());
    if (heads < 1) return text_["num_attention_heads"].Refuse("at least 1 is needed");
    TRINE_RETURN_IF_ERROR(PutInt("block_count", text_["num_hidden_layers"]));
    Put("embedding_length", hidden);
    TRINE_RETURN_IF_ERROR(PutInt("feed_forward_length", text_["intermediate_size"]));
    Put("attention.head_count", heads);
    TRINE_ASSIGN(const int64_t kv_heads, text_["num_key_value_heads"].IntOr(heads));
    Put("attention.head_count_kv", kv_heads);
    TRINE_ASSIGN(head_dim_, text_["head_dim"].IntOr(hidden / heads));
    Put("attention.key_length", head_dim_);
    Put("attention.value_length", head_dim_);
    TRINE_RETURN_IF_ERROR(PutInt("context_length", text_["max_position_embeddings"]));
    TRINE_ASSIGN(const double eps, text_["rms_norm_eps"].Number());
    Put("attention.layer_norm_rms_epsilon", eps);
    TRINE_ASSIGN(out_.vocab, text_["vocab_size"].Int());
    return {};
  }

  // Version 5 of transformers writes rope_parameters, older ones rope_theta and rope_scaling; it
  // reads any mixture but two objects.
  Status Rope() {
    const JsonField scaling = text_["rope_scaling"];
    const JsonField rope = scaling.is_null() ? text_["rope_parameters"] : scaling;
    if (!rope.is_null() && !rope.value().is_object()) return rope.Refuse("an object is needed");
    const JsonField other = text_["rope_parameters"];
    if (!other.is_null() && other.value() != rope.value()) {
      return scaling.Refuse("rope_parameters says otherwise; keep one of them");
    }
    const JsonField theta = rope["rope_theta"].is_null() ? text_["rope_theta"] : rope["rope_theta"];
    TRINE_ASSIGN(const double base, theta.NumberOr(10000));
    Put("rope.freq_base", base);
    if (out_.architecture == "qwen35") TRINE_RETURN_IF_ERROR(PartialRope(rope));
    const JsonField named = rope["rope_type"].is_null() ? rope["type"] : rope["rope_type"];
    if (named.is_null()) return {};
    TRINE_ASSIGN(const std::string type, named.String());
    if (type == "default" || type == "mrope") return {};  // text turns all sections alike
    if (type != "linear" && type != "yarn" && type != "llama3") {
      return named.Refuse("default, linear, yarn and llama3 are supported");
    }
    Put("rope.scaling.type", type);
    TRINE_ASSIGN(const double factor, rope["factor"].Number());
    Put("rope.scaling.factor", factor);
    if (type == "linear") return {};
    TRINE_RETURN_IF_ERROR(
        PutInt("rope.scaling.original_context_length", rope["original_max_position_embeddings"]));
    return type == "yarn" ? Yarn(rope, factor) : Llama3(rope);
  }

  Status PartialRope(const JsonField& rope) {
    const JsonField field = rope["partial_rotary_factor"].is_null() ? text_["partial_rotary_factor"]
                                                                    : rope["partial_rotary_factor"];
    TRINE_ASSIGN(const double part, field.NumberOr(0.25));
    if (!(part > 0 && part <= 1)) return field.Refuse("above 0 and at most 1 is needed");
    Put("rope.dimension_count", std::llround(part * static_cast<double>(head_dim_)));
    const JsonField sections = rope["mrope_section"];
    if (sections.is_null()) return {};
    TRINE_ASSIGN(const std::vector<JsonField> items, sections.Items());
    if (items.size() != 3) return sections.Refuse("three numbers are needed");
    std::vector<int64_t> pairs;
    for (const JsonField& item : items) {
      TRINE_ASSIGN(const int64_t n, item.Int());
      pairs.push_back(n);
    }
    pairs.push_back(0);
    Put("rope.dimension_sections", std::move(pairs));
    return {};
  }

  // transformers multiplies cos and sin by attention_factor alone, GGUF's reader by its own
  // attn_factor times the usual one.
  Status Yarn(const JsonField& rope, double factor) {
    for (const char* key : {"mscale", "mscale_all_dim"}) {
      if (!rope[key].is_null()) return rope[key].Refuse("it is not supported");
    }
    const double usual = 1 + 0.1 * std::log(factor);
    TRINE_ASSIGN(const double magnitude, rope["attention_factor"].NumberOr(factor > 1 ? usual : 1));
    if (magnitude != usual) Put("rope.scaling.attn_factor", magnitude / usual);
    for (const char* key : {"beta_fast", "beta_slow"}) {
      if (rope[key].is_null()) continue;
      TRINE_ASSIGN(const double value, rope[key].Number());
      Put(std::string("rope.scaling.yarn_") + key, value);
    }
    TRINE_ASSIGN(const bool truncated, rope["truncate"].BoolOr(true));
    return truncated ? Status{} : rope["truncate"].Refuse("only true is supported");
  }

  Status Llama3(const JsonField& rope) {
    for (const char* key : {"low_freq_factor", "high_freq_factor"}) {
      TRINE_ASSIGN(const double value, rope[key].Number());
      Put(std::string("rope.scaling.") + key, value);
    }
    return {};
  }

  Status Hybrid() {
    TRINE_RETURN_IF_ERROR(PutInt("ssm.conv_kernel", text_["linear_conv_kernel_dim"]));
    TRINE_RETURN_IF_ERROR(PutInt("ssm.group_count", text_["linear_num_key_heads"]));
    TRINE_ASSIGN(const int64_t dim, text_["linear_key_head_dim"].Int());
    TRINE_ASSIGN(const int64_t value_dim, text_["linear_value_head_dim"].Int());
    if (dim != value_dim) {
      return text_["linear_value_head_dim"].Refuse("linear_key_head_dim is " + std::to_string(dim) +
                                                   ", and they must be equal");
    }
    TRINE_ASSIGN(const int64_t heads, text_["linear_num_value_heads"].Int());
    if (heads < 1 || heads > INT32_MAX || dim < 1 || dim > INT32_MAX) {
      return text_["linear_num_value_heads"].Refuse("heads and their width are at least 1");
    }
    Put("ssm.state_size", dim);
    Put("ssm.time_step_rank", heads);
    Put("ssm.inner_size", heads * dim);
    const JsonField types = text_["layer_types"];
    if (types.is_null()) {
      TRINE_ASSIGN(const int64_t interval, text_["full_attention_interval"].IntOr(4));
      Put("full_attention_interval", interval);
      return {};
    }
    return LayerTypes(types);
  }

  // As an interval where they are one: that is what most files say.
  Status LayerTypes(const JsonField& types) {
    TRINE_ASSIGN(const std::vector<JsonField> items, types.Items());
    std::vector<bool> recurrent;
    for (const JsonField& item : items) {
      TRINE_ASSIGN(const std::string type, item.String());
      if (type != "linear_attention" && type != "full_attention") {
        return item.Refuse("linear_attention and full_attention are supported");
      }
      recurrent.push_back(type == "linear_attention");
    }
    const auto first = std::find(recurrent.begin(), recurrent.end(), false);
    const int64_t interval = first - recurrent.begin() + 1;
    bool regular = first != recurrent.end();
    for (int64_t i = 0; i < std::ssize(recurrent); ++i) {
      regular &= recurrent[static_cast<size_t>(i)] == ((i + 1) % interval != 0);
    }
    if (regular) {
      Put("full_attention_interval", interval);
    } else {
      Put("attention.recurrent_layers", std::move(recurrent));
    }
    return {};
  }

  const JsonField text_;
  HfConfig& out_;
  int64_t head_dim_ = 0;
};

Status ReadDType(const JsonField& root, const JsonField& text, HfConfig& out) {
  for (const JsonField& field :
       {text["dtype"], text["torch_dtype"], root["dtype"], root["torch_dtype"]}) {
    if (field.is_null()) continue;
    TRINE_ASSIGN(const std::string name, field.String());
    if (name == "float32") out.dtype = DType::kF32;
    if (name == "float16") out.dtype = DType::kF16;
    if (name == "bfloat16") out.dtype = DType::kBF16;
    if (!out.dtype) return field.Refuse("float32, float16 and bfloat16 are supported");
    return {};
  }
  return {};
}

Status ReadRoot(const JsonField& root, HfConfig& out) {
  const JsonField classes = root["architectures"];
  TRINE_ASSIGN(const std::vector<JsonField> items, classes.Items());
  if (items.size() != 1) return classes.Refuse("one class is needed");
  TRINE_ASSIGN(const std::string name, items[0].String());
  const HfClass* known = FindHfClass(name);
  if (known == nullptr) return items[0].Refuse("supported are " + KnownHfClasses());
  out.architecture = known->architecture;
  out.metadata.Insert("general.architecture", out.architecture);
  const JsonField text = root["text_config"].is_null() ? root : root["text_config"];
  TRINE_RETURN_IF_ERROR(ReadDType(root, text, out));
  const JsonField tied = text["tie_word_embeddings"].is_null() ? root["tie_word_embeddings"]
                                                               : text["tie_word_embeddings"];
  TRINE_ASSIGN(out.tied, tied.BoolOr(false));
  if (const JsonField q = root["quantization_config"]; !q.is_null()) {
    return q.Refuse("only F32, F16 and BF16 weights are read; get the unquantised model");
  }
  return Reader(text, out).Read();
}

// ---- writing

class Writer {
 public:
  Writer(const HfConfig& config, const std::vector<float>& rope_factors)
      : config_(config), rope_factors_(rope_factors) {}

  Result<std::string> Write() {
    const HfClass* known = HfClassFor(config_.architecture);
    if (known == nullptr) {
      return BadInput("architecture " + Quote(config_.architecture) +
                      " has no class of Hugging Face here; those that have are of " +
                      KnownHfClasses());
    }
    out_["architectures"] = {known->name};
    out_["model_type"] = known->model_type;
    out_["hidden_act"] = "silu";
    out_["tie_word_embeddings"] = config_.tied;
    out_["vocab_size"] = config_.vocab;
    out_["torch_dtype"] = config_.dtype == DType::kF32    ? "float32"
                          : config_.dtype == DType::kBF16 ? "bfloat16"
                                                          : "float16";
    TRINE_RETURN_IF_ERROR(Dimensions());
    TRINE_RETURN_IF_ERROR(Rope());
    if (config_.architecture == "qwen35") TRINE_RETURN_IF_ERROR(Hybrid());
    return out_.dump(2) + "\n";
  }

 private:
  std::string Key(const std::string& key) const { return config_.architecture + "." + key; }
  bool Has(const std::string& key) const { return config_.metadata.Find(Key(key)) != nullptr; }
  Result<int64_t> Int(const std::string& key) const { return config_.metadata.Int(Key(key)); }
  Result<double> Float(const std::string& key) const { return config_.metadata.Float(Key(key)); }

  Status CopyInt(const char* to, const std::string& key) {
    TRINE_ASSIGN(const int64_t value, Int(key));
    out_[to] = value;
    return {};
  }

  // GGUF has 32-bit floats; their shortest decimal is what was meant.
  static json Short(double value) {
    const auto narrow = static_cast<float>(value);
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", static_cast<double>(narrow));
    for (int digits = 1; digits < 9; ++digits) {
      char shorter[32];
      std::snprintf(shorter, sizeof shorter, "%.*g", digits, static_cast<double>(narrow));
      if (std::strtof(shorter, nullptr) != narrow) continue;
      return std::strtod(shorter, nullptr);
    }
    return std::strtod(text, nullptr);
  }

  Status Dimensions() {
    TRINE_ASSIGN(const int64_t blocks, Int("block_count"));
    TRINE_ASSIGN(const int64_t extra, config_.metadata.IntOr(Key("nextn_predict_layers"), 0));
    layers_ = blocks - extra;
    out_["num_hidden_layers"] = layers_;
    TRINE_RETURN_IF_ERROR(CopyInt("hidden_size", "embedding_length"));
    TRINE_RETURN_IF_ERROR(CopyInt("intermediate_size", "feed_forward_length"));
    TRINE_RETURN_IF_ERROR(CopyInt("num_attention_heads", "attention.head_count"));
    TRINE_RETURN_IF_ERROR(CopyInt("max_position_embeddings", "context_length"));
    const auto heads = out_["num_attention_heads"].get<int64_t>();
    TRINE_ASSIGN(const int64_t kv_heads,
                 config_.metadata.IntOr(Key("attention.head_count_kv"), heads));
    out_["num_key_value_heads"] = kv_heads;
    TRINE_ASSIGN(head_dim_, config_.metadata.IntOr(Key("attention.key_length"),
                                                   out_["hidden_size"].get<int64_t>() / heads));
    out_["head_dim"] = head_dim_;
    TRINE_ASSIGN(const double eps, Float("attention.layer_norm_rms_epsilon"));
    out_["rms_norm_eps"] = Short(eps);
    out_["attention_bias"] = config_.architecture == "llama" && config_.biases;
    return {};
  }

  Status Rope() {
    TRINE_ASSIGN(const double base, config_.metadata.FloatOr(Key("rope.freq_base"), 10000));
    json scaling = json::object();
    TRINE_RETURN_IF_ERROR(Scaling(scaling));
    if (config_.architecture != "qwen35") {
      TRINE_ASSIGN(const int64_t dims,
                   config_.metadata.IntOr(Key("rope.dimension_count"), head_dim_));
      if (dims != head_dim_) {
        return BadInput("'" + Key("rope.dimension_count") + "' is " + std::to_string(dims) +
                        " of heads of " + std::to_string(head_dim_) +
                        "; its class of Hugging Face turns them whole");
      }
      out_["rope_theta"] = Short(base);
      if (!scaling.empty()) out_["rope_scaling"] = scaling;
      return {};
    }
    if (scaling.empty()) scaling["rope_type"] = "default";
    scaling["rope_theta"] = Short(base);
    TRINE_ASSIGN(const int64_t dims,
                 config_.metadata.IntOr(Key("rope.dimension_count"), head_dim_));
    const double part = static_cast<double>(dims) / static_cast<double>(head_dim_);
    scaling["partial_rotary_factor"] = part;
    TRINE_ASSIGN(const std::vector<int64_t>* sections,
                 config_.metadata.Ints(Key("rope.dimension_sections")));
    if (sections != nullptr && sections->size() >= 3) {
      scaling["mrope_interleaved"] = true;
      scaling["mrope_section"] = std::vector(sections->begin(), sections->begin() + 3);
    }
    out_["rope_parameters"] = scaling;
    return {};
  }

  Status Scaling(json& out) {
    TRINE_ASSIGN(const std::string type,
                 config_.metadata.StringOr(Key("rope.scaling.type"), "none"));
    if (type == "none") return rope_factors_.empty() ? Status{} : Llama3(out);
    if (!rope_factors_.empty()) {
      return BadInput("rope_freqs.weight beside '" + Key("rope.scaling.type") + "' " + Quote(type) +
                      " has no place in config.json");
    }
    out["rope_type"] = type;
    TRINE_ASSIGN(const double factor, Float("rope.scaling.factor"));
    out["factor"] = Short(factor);
    if (type == "linear") return {};
    TRINE_ASSIGN(const int64_t original, Int("rope.scaling.original_context_length"));
    out["original_max_position_embeddings"] = original;
    for (const char* key : {"low_freq_factor", "high_freq_factor"}) {
      if (type != "llama3") continue;
      TRINE_ASSIGN(const double value, Float(std::string("rope.scaling.") + key));
      out[key] = Short(value);
    }
    if (Has("rope.scaling.attn_factor")) {
      TRINE_ASSIGN(const double magnitude, Float("rope.scaling.attn_factor"));
      if (magnitude != 1) out["attention_factor"] = magnitude * (1 + 0.1 * std::log(factor));
    }
    for (const char* key : {"beta_fast", "beta_slow"}) {
      if (!Has(std::string("rope.scaling.yarn_") + key)) continue;
      TRINE_ASSIGN(const double value, Float(std::string("rope.scaling.yarn_") + key));
      out[key] = Short(value);
    }
    return {};
  }

  // GGUF has Llama 3's rule as a table of divisors; which numbers made it is found by trying.
  Status Llama3(json& out) {
    TRINE_ASSIGN(const double base, config_.metadata.FloatOr(Key("rope.freq_base"), 10000));
    Llama3Rope rope;
    rope.factor = *std::max_element(rope_factors_.begin(), rope_factors_.end());
    const auto same = [](float a, float b) { return std::abs(a - b) <= 1e-5f * b; };
    for (rope.original_context = 16; rope.original_context <= 1 << 20; rope.original_context *= 2) {
      const std::vector<float> made = rope.Divisors(base, head_dim_);
      if (!std::equal(made.begin(), made.end(), rope_factors_.begin(), rope_factors_.end(), same)) {
        continue;
      }
      out["rope_type"] = "llama3";
      out["factor"] = Short(rope.factor);
      out["low_freq_factor"] = rope.low_freq;
      out["high_freq_factor"] = rope.high_freq;
      out["original_max_position_embeddings"] = static_cast<int64_t>(rope.original_context);
      return {};
    }
    return BadInput(
        "rope_freqs.weight is not made by Llama 3's rule with factors 1 and 4; "
        "config.json cannot hold it");
  }

  Status Hybrid() {
    TRINE_RETURN_IF_ERROR(CopyInt("linear_conv_kernel_dim", "ssm.conv_kernel"));
    TRINE_RETURN_IF_ERROR(CopyInt("linear_num_key_heads", "ssm.group_count"));
    TRINE_RETURN_IF_ERROR(CopyInt("linear_num_value_heads", "ssm.time_step_rank"));
    TRINE_RETURN_IF_ERROR(CopyInt("linear_key_head_dim", "ssm.state_size"));
    TRINE_RETURN_IF_ERROR(CopyInt("linear_value_head_dim", "ssm.state_size"));
    out_["attn_output_gate"] = true;
    TRINE_ASSIGN(const std::vector<bool>* listed,
                 config_.metadata.Bools(Key("attention.recurrent_layers")));
    TRINE_ASSIGN(const int64_t interval, config_.metadata.IntOr(Key("full_attention_interval"), 4));
    json types = json::array();
    for (int64_t i = 0; i < layers_; ++i) {
      const bool recurrent =
          listed != nullptr ? (*listed)[static_cast<size_t>(i)] : (i + 1) % interval != 0;
      types.push_back(recurrent ? "linear_attention" : "full_attention");
    }
    out_["layer_types"] = types;
    return {};
  }

  const HfConfig& config_;
  const std::vector<float>& rope_factors_;
  json out_;
  int64_t layers_ = 0, head_dim_ = 0;
};

}  // namespace

Result<HfConfig> ReadHfConfig(const std::string& path) {
  TRINE_ASSIGN(const std::string text, ReadTextFile(path, kMaxBytes));
  TRINE_ASSIGN(const json root, ParseJson(text, path));
  HfConfig config;
  const Status read = ReadRoot(JsonField(root, ""), config);
  if (!read.ok()) return BadInput(path + ": " + read.message());
  return config;
}

Result<std::string> WriteHfConfig(const HfConfig& config, const std::vector<float>& rope_factors) {
  return Writer(config, rope_factors).Write();
}

}  // namespace trine
