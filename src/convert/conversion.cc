#include "src/convert/conversion.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "src/convert/row_converter.h"
#include "src/core/quote.h"
#include "src/weights/hf_names.h"
#include "src/weights/llama3_rope.h"
#include "src/weights/row_codec.h"

namespace trine {
namespace {

bool IsConvolution(const TensorInfo& tensor) {
  return tensor.name.ends_with("ssm_conv1d.weight");
}
bool IsMatrix(const TensorInfo& tensor) {
  return tensor.shape.size() > 1 && !IsConvolution(tensor);
}
// The projections behind the gates of Gated DeltaNet: too small to be worth rounding, and not
// ternary in the files that are otherwise.
bool IsGate(const TensorInfo& tensor) {
  return tensor.name.ends_with("ssm_alpha.weight") || tensor.name.ends_with("ssm_beta.weight");
}

int64_t BytesOf(const TensorInfo& tensor) {
  int64_t rows = 1;
  for (size_t d = 1; d < tensor.shape.size(); ++d) rows *= tensor.shape[d];
  return rows * RowBytes(tensor.type, tensor.cols());
}

// general.file_type, as llama.cpp and PrismML number what most matrices of a file are.
std::optional<int64_t> FileType(DType type) {
  constexpr std::pair<DType, int64_t> kNumbers[] = {
      {DType::kF32, 0},    {DType::kF16, 1},    {DType::kQ8_0, 7},    {DType::kBF16, 32},
      {DType::kTQ1_0, 36}, {DType::kTQ2_0, 37}, {DType::kPQ2_0, 128}, {DType::kPTQ1_0, 129}};
  for (const auto& [known, number] : kNumbers) {
    if (known == type) return number;
  }
  return {};
}

// The type that most bytes of matrices have.
DType MainType(const std::vector<ConvertedTensor>& tensors) {
  int64_t bytes[std::size(kDTypes)] = {};
  for (const ConvertedTensor& tensor : tensors) {
    if (IsMatrix(tensor.out)) bytes[static_cast<size_t>(tensor.out.type)] += tensor.out.bytes;
  }
  return static_cast<DType>(std::max_element(std::begin(bytes), std::end(bytes)) - bytes);
}

// Keys that hold for one container or one set of files.
bool IsCarried(const std::string& key) {
  return !key.starts_with("split.") && key != "general.file_type" && key != "general.alignment";
}

// A matrix's type in GGUF; what cannot have the wanted one stays as it is, and is named.
// `ternary`: the source has ternary matrices, and the others are not meant to be.
DType GgufType(const TensorInfo& in, std::optional<DType> wanted, bool ternary,
               std::vector<std::string>& kept) {
  if (!IsMatrix(in)) return DType::kF32;
  if (!wanted || in.type == *wanted) return in.type;
  const bool stays = IsTernary(*wanted) && !IsTernary(in.type) && (ternary || IsGate(in));
  if (!stays && in.cols() % Info(*wanted).block_elems == 0) return *wanted;
  kept.push_back(in.name);
  return in.type;
}

// ---- from GGUF to GGUF

bool HasTernary(const WeightStore& store) {
  return std::any_of(store.tensors().begin(), store.tensors().end(),
                     [](const TensorInfo& tensor) { return IsTernary(tensor.type); });
}

Conversion PlanTranscoding(const WeightStore& store, std::optional<DType> type) {
  Conversion plan;
  for (const TensorInfo& in : store.tensors()) {
    ConvertedTensor tensor;
    tensor.in = &in;
    tensor.out = in;
    if (IsMatrix(in)) tensor.out.type = GgufType(in, type, HasTernary(store), plan.kept);
    tensor.out.bytes = BytesOf(tensor.out);
    plan.tensors.push_back(std::move(tensor));
  }
  const bool same = std::all_of(plan.tensors.begin(), plan.tensors.end(), [](const auto& tensor) {
    return tensor.out.type == tensor.in->type;
  });
  for (const auto& [key, value] : store.metadata().entries()) {
    if (IsCarried(key) || (same && key == "general.file_type")) plan.metadata.Insert(key, value);
  }
  const auto number = FileType(MainType(plan.tensors));
  if (number && !same) plan.metadata.Insert("general.file_type", *number);
  return plan;
}

// ---- between containers

class Planner {
 public:
  Planner(const WeightStore& store, Container target, std::optional<DType> type)
      : store_(store), type_(type) {
    plan_.target = target;
  }

  Result<Conversion> Plan() {
    std::string error;
    const std::unique_ptr<Backend> dry = MakeCpuBackend({.dry = true}, &error);
    if (dry == nullptr) return BadInput(error);
    TRINE_ASSIGN(model_, PlanModel(store_, 1, {}, *dry, &plan_.unexpected));
    CollectClaimed();
    for (const TensorInfo& in : store_.tensors()) {
      if (claimed_.count(&in) != 0) TRINE_RETURN_IF_ERROR(Add(in));
    }
    if (plan_.target == Container::kHuggingFace) {
      TRINE_RETURN_IF_ERROR(FinishHuggingFace());
    } else {
      FinishGguf();
    }
    return std::move(plan_);
  }

 private:
  const ModelConfig& config() const { return model_.config; }
  bool to_gguf() const { return plan_.target == Container::kGguf; }
  Conventions target() const { return to_gguf() ? kGgufConventions : kHfConventions; }

  void CollectClaimed() {
    for (const Claim& claim : model_.claims[0]) claimed_.insert(claim.tensor);
    plan_.left_out = store_.left_out();
    const std::set<std::string_view> unexpected(plan_.unexpected.begin(), plan_.unexpected.end());
    for (const TensorInfo& tensor : store_.tensors()) {
      const bool outside = claimed_.count(&tensor) == 0 && unexpected.count(tensor.name) == 0;
      if (outside) plan_.left_out.push_back(tensor.name);
    }
  }

  Status Add(const TensorInfo& in) {
    if (!to_gguf() && in.name == "rope_freqs.weight") {
      TRINE_ASSIGN(plan_.rope_factors, ReadVector(store_, in));
      return {};
    }
    ConvertedTensor tensor;
    tensor.in = &in;
    tensor.out = in;
    tensor.out.stored_as = StoredAs::kValue;
    if (!to_gguf()) {
      const std::optional<HfName> name = ToHf(config().architecture, in.name);
      if (!name) return BadInput("tensor " + Quote(in.name) + " has no name at Hugging Face");
      tensor.out.stored_as = name->stored_as;
    }
    AddOrder(in, tensor);
    if (!to_gguf()) AddRotation(in, tensor);
    TRINE_ASSIGN(tensor.out.type,
                 to_gguf() ? GgufType(in, type_, /*ternary=*/false, plan_.kept) : HfType(in));
    tensor.out.bytes = BytesOf(tensor.out);
    plan_.tensors.push_back(std::move(tensor));
    return {};
  }

  // Vectors and convolutions get theirs when that of the matrices is known.
  Result<DType> HfType(const TensorInfo& in) const {
    if (!IsMatrix(in)) return DType::kF32;
    const bool plain = Info(in.type).block_elems == 1;
    const DType type = type_.value_or(plain ? in.type : DType::kF16);
    if (Info(type).block_elems == 1) return type;
    return BadInput(std::string("--type ") + Info(type).name +
                    " has no place in safetensors; f32, f16 and bf16 have");
  }

  void AddRotation(const TensorInfo& in, ConvertedTensor& tensor) const {
    const Rotation& rotation = model_.rotation;
    const bool embedding = in.name == "token_embd.weight" && rotation.RotatesEmbedding();
    if (!embedding && !rotation.Rotates(in.name)) return;
    tensor.unrotate = rotation.Signs(in.cols());
    tensor.block = rotation.block();
  }

  // Elements of `count` value heads of `width` each behind `before` others, into the target's
  // order.
  Order ValueHeads(ValueHeadOrder from, int64_t before, int64_t width) const {
    Order order(static_cast<size_t>(before + config().value_heads * width));
    std::iota(order.begin(), order.end(), 0);
    for (int64_t head = 0; head < config().value_heads; ++head) {
      const auto place = [&](ValueHeadOrder o) {
        return before + width * StoredValueHead(o, config().key_heads, config().value_heads, head);
      };
      const int64_t to = place(target().value_heads), source = place(from);
      for (int64_t i = 0; i < width; ++i) order[static_cast<size_t>(to + i)] = source + i;
    }
    return order;
  }

  Order RotaryRows(int64_t heads) const {
    Order order(static_cast<size_t>(heads * config().head_dim));
    for (int64_t row = 0; row < std::ssize(order); ++row) {
      const int64_t dim = config().head_dim, first = row / dim * dim;
      const auto place = [&](RotaryRowOrder o) {
        return first + StoredRotaryRow(o, dim, row % dim);
      };
      order[static_cast<size_t>(place(target().llama_rows))] =
          place(store_.conventions().llama_rows);
    }
    return order;
  }

  // What has another order in the target: rows of a matrix, elements of a vector, columns of
  // ssm_out.
  void AddOrder(const TensorInfo& in, ConvertedTensor& tensor) const {
    const std::string_view name = in.name;
    const auto is = [&](std::string_view role) { return name.ends_with(role); };
    const ValueHeadOrder from = store_.conventions().value_heads;
    const int64_t dim = config().delta_dim, keys = 2 * config().key_heads * dim;
    const bool hybrid = config().architecture == "qwen35";
    Order order;
    if (hybrid && is(".ssm_out.weight")) {
      const bool grouped = model_.rotation.Rotates(in.name) && model_.rotation.delta_grouped();
      tensor.columns = ValueHeads(grouped ? ValueHeadOrder::kGrouped : from, 0, dim);
      return DropIdentity(tensor);
    }
    if (hybrid && (is(".attn_qkv.weight") || is(".ssm_conv1d.weight"))) {
      order = ValueHeads(from, keys, dim);
    } else if (hybrid && is(".attn_gate.weight")) {
      order = ValueHeads(from, 0, dim);
    } else if (hybrid && (IsGate(in) || is(".ssm_a") || is(".ssm_dt.bias"))) {
      order = ValueHeads(from, 0, 1);
    } else if (config().architecture == "llama" && (is(".attn_q.weight") || is(".attn_q.bias"))) {
      order = RotaryRows(config().q_heads);
    } else if (config().architecture == "llama" && (is(".attn_k.weight") || is(".attn_k.bias"))) {
      order = RotaryRows(config().kv_heads);
    }
    (in.shape.size() > 1 ? tensor.rows : tensor.columns).swap(order);
    DropIdentity(tensor);
  }

  static void DropIdentity(ConvertedTensor& tensor) {
    for (Order* order : {&tensor.rows, &tensor.columns}) {
      if (std::is_sorted(order->begin(), order->end())) order->clear();
    }
  }

  Status FinishHuggingFace() {
    HfConfig& out = plan_.config;
    out.architecture = config().architecture;
    out.metadata = store_.metadata();
    out.dtype = MainType(plan_.tensors);
    out.tied = store_.Find("output.weight") == nullptr;
    out.vocab = config().vocab;
    TRINE_ASSIGN(out.biases, HasBiases());
    plan_.metadata = store_.metadata();
    for (ConvertedTensor& tensor : plan_.tensors) {
      tensor.out.name = ToHf(out.architecture, tensor.in->name)->name;
      if (IsConvolution(*tensor.in)) tensor.out.shape.insert(tensor.out.shape.begin() + 1, 1);
      if (IsMatrix(*tensor.in)) {  // 16 bits of another kind have a place in 32
        if (tensor.out.type != *out.dtype) tensor.out.type = DType::kF32;
        tensor.out.bytes = BytesOf(tensor.out);
        continue;
      }
      TRINE_ASSIGN(const bool exact, HoldsExactly(store_, tensor, *out.dtype));
      if (exact) tensor.out.type = *out.dtype;
      tensor.out.bytes = BytesOf(tensor.out);
    }
    return {};
  }

  // transformers' llama has biases on all four projections of attention or on none, its qwen2 on
  // the inputs.
  Result<bool> HasBiases() const {
    std::set<std::string> with, without;
    for (int64_t layer = 0; layer < config().layers; ++layer) {
      for (const char* role : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
        const std::string bias = "blk." + std::to_string(layer) + "." + role + ".bias";
        (store_.Find(bias) != nullptr ? with : without).insert(bias);
      }
    }
    if (config().architecture == "qwen2") {
      const auto output = std::find_if(with.begin(), with.end(), [](const std::string& bias) {
        return bias.ends_with("attn_output.bias");
      });
      if (output == with.end()) return false;
      return BadInput(Quote(*output) + " has no place in Qwen2ForCausalLM");
    }
    if (config().architecture != "llama") return false;
    if (!with.empty() && !without.empty()) {
      return BadInput(Quote(*with.begin()) + " is there and " + Quote(*without.begin()) +
                      " is not; LlamaForCausalLM has all biases of attention or none");
    }
    return !with.empty();
  }

  void FinishGguf() {
    const std::string scaling = config().architecture + ".rope.scaling.";
    const auto type = store_.metadata().StringOr(scaling + "type", "none");
    const bool llama3 = type.ok() && *type == "llama3";
    for (const auto& [key, value] : store_.metadata().entries()) {
      if (IsCarried(key) && !(llama3 && key.starts_with(scaling)))
        plan_.metadata.Insert(key, value);
    }
    if (llama3) AddRopeFactors(scaling);
    if (const auto number = FileType(MainType(plan_.tensors))) {
      plan_.metadata.Insert("general.file_type", *number);
    }
    plan_.metadata.Insert("general.quantization_version", int64_t{2});
  }

  // GGUF has Llama 3's rule as a table. The plan has read these keys and found them right.
  void AddRopeFactors(const std::string& scaling) {
    const Metadata& meta = store_.metadata();
    const auto number = [&](const std::string& key, double fallback) {
      return *meta.FloatOr(key, fallback);
    };
    const Llama3Rope rule{number(scaling + "factor", 1), number(scaling + "low_freq_factor", 1),
                          number(scaling + "high_freq_factor", 4),
                          number(scaling + "original_context_length", 0)};
    ConvertedTensor tensor;
    tensor.values =
        rule.Divisors(number(config().architecture + ".rope.freq_base", 10000), config().head_dim);
    tensor.out.name = "rope_freqs.weight";
    tensor.out.shape = {std::ssize(tensor.values)};
    tensor.out.bytes = BytesOf(tensor.out);
    plan_.tensors.push_back(std::move(tensor));
  }

  const WeightStore& store_;
  const std::optional<DType> type_;
  Conversion plan_;
  ModelPlan model_;
  std::set<const TensorInfo*> claimed_;
};

}  // namespace

int64_t Conversion::bytes() const {
  int64_t total = 0;
  for (const ConvertedTensor& tensor : tensors) total += tensor.out.bytes;
  return total;
}

int64_t Conversion::read_bytes() const {
  int64_t total = 0;
  for (const ConvertedTensor& tensor : tensors)
    total += tensor.in == nullptr ? 0 : tensor.in->bytes;
  return total;
}

Result<Conversion> PlanConversion(const WeightStore& store, Container target,
                                  std::optional<DType> type) {
  const bool from_gguf = store.tokenizer_folder().empty();
  if (from_gguf && target == Container::kGguf) return PlanTranscoding(store, type);
  Result<Conversion> plan = Planner(store, target, type).Plan();
  if (plan.ok() || plan.status().message().starts_with(store.name())) return plan;
  return BadInput(store.name() + ": " + plan.status().message());
}

}  // namespace trine
