#include "src/synth/model_layout.h"

#include <cmath>

#include "src/synth/random_stream.h"

namespace trine {
namespace {

using Net = DeltaNetShape;

constexpr double kLogitDeviation = 2.5;

bool HasFullAttention(const Preset& preset, int layer) {
  return !preset.hybrid() || (layer + 1) % Net::kAttentionInterval == 0;
}

// The tensors as they are added.
class Layout {
 public:
  Layout(const Preset& preset, DType type, int layers)
      : preset_(preset), type_(type), residual_gain_(1 / std::sqrt(2.0 * layers)) {}

  std::vector<SynthTensor> Take() { return std::move(tensors_); }

  // Token embeddings and head, under the names of the file.
  void AddEnds() {
    const double head = kLogitDeviation / std::sqrt(static_cast<double>(preset_.hidden));
    Matrix("token_embd.weight", preset_.hidden, preset_.vocab, preset_.tied ? head : 1.0,
           /*rotated=*/false);
    Vector("output_norm.weight", preset_.hidden, Fill::kNorm);
    if (preset_.tied) return;
    Matrix("output.weight", preset_.hidden, preset_.vocab, head, preset_.rotated);
  }

  void AddLayer(int index) {
    prefix_ = "blk." + std::to_string(index) + ".";
    const int64_t hidden = preset_.hidden;
    Vector("attn_norm.weight", hidden, Fill::kNorm);
    HasFullAttention(preset_, index) ? AddAttention() : AddDeltaNet();
    Vector(preset_.hybrid() ? "post_attention_norm.weight" : "ffn_norm.weight", hidden,
           Fill::kNorm);
    Linear("ffn_gate.weight", hidden, preset_.ffn);
    Linear("ffn_up.weight", hidden, preset_.ffn);
    ToResidual("ffn_down.weight", preset_.ffn);
  }

 private:
  void AddAttention() {
    const int64_t q = preset_.q_heads * preset_.head_dim, kv = preset_.kv_heads * preset_.head_dim;
    Linear("attn_q.weight", preset_.hidden, preset_.hybrid() ? 2 * q : q);  // and its gate
    Linear("attn_k.weight", preset_.hidden, kv);
    Linear("attn_v.weight", preset_.hidden, kv);
    Vector("attn_q_norm.weight", preset_.head_dim, Fill::kNorm);
    Vector("attn_k_norm.weight", preset_.head_dim, Fill::kNorm);
    ToResidual("attn_output.weight", q);
  }

  void AddDeltaNet() {
    Linear("attn_qkv.weight", preset_.hidden, Net::kConvWidth);
    Linear("attn_gate.weight", preset_.hidden, Net::kValueWidth);
    const DType gates = preset_.same_gates ? type_ : DType::kBF16;
    for (const char* name : {"ssm_alpha.weight", "ssm_beta.weight"}) {
      Add(name, gates, {preset_.hidden, Net::kValueHeads}, Fill::kCentred, PerInput(preset_.hidden),
          /*rotated=*/false);
    }
    Add("ssm_conv1d.weight", DType::kF32, {Net::kConvTaps, Net::kConvWidth}, Fill::kCentred,
        PerInput(Net::kConvTaps), /*rotated=*/false);
    Vector("ssm_a", Net::kValueHeads, Fill::kDecay);
    Vector("ssm_dt.bias", Net::kValueHeads, Fill::kTimeStep);
    Vector("ssm_norm.weight", Net::kHeadDim, Fill::kNorm);
    ToResidual("ssm_out.weight", Net::kValueWidth);
  }

  static double PerInput(int64_t inputs) { return 1 / std::sqrt(static_cast<double>(inputs)); }

  void Linear(const char* name, int64_t inputs, int64_t outputs) {
    Matrix(name, inputs, outputs, PerInput(inputs), preset_.rotated);
  }

  void ToResidual(const char* name, int64_t inputs) {
    Matrix(name, inputs, preset_.hidden, PerInput(inputs) * residual_gain_, preset_.rotated);
  }

  void Matrix(const char* name, int64_t inputs, int64_t outputs, double deviation, bool rotated) {
    Add(name, type_, {inputs, outputs}, Fill::kCentred, deviation, rotated);
  }

  void Vector(const char* name, int64_t size, Fill fill) {
    Add(name, DType::kF32, {size}, fill, /*deviation=*/0, /*rotated=*/false);
  }

  void Add(const char* name, DType type, std::vector<int64_t> shape, Fill fill, double deviation,
           bool rotated) {
    TensorInfo info;
    info.name = prefix_ + name;
    info.type = type;
    info.bytes = RowBytes(type, shape[0]) * (shape.size() > 1 ? shape[1] : 1);
    info.shape = std::move(shape);
    tensors_.push_back({std::move(info), fill, static_cast<float>(deviation), rotated});
  }

  const Preset& preset_;
  const DType type_;
  const double residual_gain_;
  std::string prefix_;
  std::vector<SynthTensor> tensors_;
};

void DescribeArchitecture(const Preset& preset, int layers, Metadata& meta) {
  const std::string arch = std::string(preset.architecture) + ".";
  const auto insert = [&](const char* key, MetaValue value) { meta.Insert(arch + key, value); };
  insert("block_count", int64_t{layers});
  insert("context_length", preset.context);
  insert("embedding_length", preset.hidden);
  insert("feed_forward_length", preset.ffn);
  insert("attention.head_count", preset.q_heads);
  insert("attention.head_count_kv", preset.kv_heads);
  insert("attention.key_length", preset.head_dim);
  insert("attention.value_length", preset.head_dim);
  insert("attention.layer_norm_rms_epsilon", 1e-6);
  insert("rope.freq_base", preset.rope_base);
  if (preset.yarn) {
    insert("rope.scaling.type", std::string("yarn"));
    insert("rope.scaling.factor", 4.0);
    insert("rope.scaling.original_context_length", int64_t{16384});
  }
  if (!preset.hybrid()) return;
  insert("full_attention_interval", int64_t{Net::kAttentionInterval});
  insert("ssm.group_count", Net::kKeyHeads);
  insert("ssm.time_step_rank", Net::kValueHeads);
  insert("ssm.state_size", Net::kHeadDim);
  insert("ssm.inner_size", Net::kValueWidth);
  insert("ssm.conv_kernel", Net::kConvTaps);
  insert("rope.dimension_count", int64_t{64});
  insert("rope.dimension_sections", std::vector<int64_t>{11, 11, 10, 0});
}

void DescribeRotation(const Preset& preset, const std::vector<SynthTensor>& tensors, uint64_t seed,
                      Metadata& meta) {
  const std::vector<int64_t> widths = {preset.hidden, Net::kValueWidth, preset.ffn};
  std::vector<int64_t> signs;
  for (size_t i = 0; i < widths.size(); ++i) {
    RandomStream random(seed, RandomStream::kSigns, static_cast<int64_t>(i));
    for (int64_t c = 0; c < widths[i]; ++c) signs.push_back((random.Next() >> 63) != 0 ? 1 : -1);
  }
  std::vector<std::string> names;
  for (const SynthTensor& tensor : tensors) {
    if (tensor.rotated) names.push_back(tensor.info.name);
  }
  const auto insert = [&](const char* key, MetaValue value) {
    meta.Insert(std::string("prism.hadamard.") + key, std::move(value));
  };
  insert("version", int64_t{1});
  insert("block_size", int64_t{1024});
  insert("transform", std::string("normalized-sylvester-walsh-hadamard"));
  insert("axis", std::string("input-last-dimension"));
  insert("sign_mode", std::string("explicit"));
  insert("sign_widths", widths);
  insert("sign_values", std::move(signs));
  insert("weight_names", std::move(names));
  insert("inverse_weight_names", std::vector<std::string>{"token_embd.weight"});
  insert("gdn_v_grouped", true);
}

}  // namespace

std::vector<SynthTensor> LayOutModel(const Preset& preset, DType type, int layers) {
  Layout layout(preset, type, layers);
  layout.AddEnds();
  for (int i = 0; i < layers; ++i) layout.AddLayer(i);
  return layout.Take();
}

Metadata DescribeModel(const Preset& preset, int layers, const std::vector<SynthTensor>& tensors,
                       uint64_t seed) {
  Metadata meta;
  meta.Insert("general.architecture", std::string(preset.architecture));
  meta.Insert("general.name", std::string(preset.name) + " (random weights)");
  meta.Insert("general.description", "The shape of " + std::string(preset.name) +
                                         " with random weights (seed " + std::to_string(seed) +
                                         ") and a made-up vocabulary: for measurements, not text");
  DescribeArchitecture(preset, layers, meta);
  if (preset.rotated) DescribeRotation(preset, tensors, seed, meta);
  return meta;
}

std::unique_ptr<WeightStore> DescribeFile(const Preset& preset, DType type, int layers) {
  const std::vector<SynthTensor> tensors = LayOutModel(preset, type, layers);
  ModelFiles files;
  files.name = preset.name;
  files.metadata = DescribeModel(preset, layers, tensors, /*seed=*/0);
  for (const SynthTensor& tensor : tensors) files.tensors.push_back(tensor.info);
  return std::make_unique<WeightStore>(std::move(files));
}

Result<int> LayerCount(const Preset& preset, int asked) {
  if (asked == -1) return preset.layers;
  const int least = preset.hybrid() ? Net::kAttentionInterval : 1;  // one layer of attention
  if (asked >= least && asked <= preset.layers) return asked;
  return Status(Code::kUsage, "--layers is " + std::to_string(asked) + "; " + preset.name +
                                  " has " + std::to_string(least) + " to " +
                                  std::to_string(preset.layers) + ", -1 is all of them");
}

}  // namespace trine
