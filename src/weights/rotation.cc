#include "src/weights/rotation.h"

#include <algorithm>
#include <iterator>

#include "src/core/quote.h"

namespace trine {
namespace {

constexpr char kPrefix[] = "prism.hadamard.";
constexpr char kEmbedding[] = "token_embd.weight";
constexpr char kHead[] = "output.weight";
constexpr int64_t kLeastBlock = 16, kMostBlock = 65536;

std::string Key(const char* name) {
  return std::string(kPrefix) + name;
}

std::string Named(const char* name) {
  return "'" + Key(name) + "'";
}

// Keys that this reader knows: another one might change the meaning of those.
Status CheckKeys(const Metadata& meta) {
  constexpr const char* kKnown[] = {"version",       "block_size",   "transform",
                                    "axis",          "sign_mode",    "sign_widths",
                                    "sign_values",   "weight_names", "inverse_weight_names",
                                    "gdn_v_grouped", "tied_output"};
  for (const auto& [key, value] : meta.entries()) {
    if (!key.starts_with(kPrefix)) continue;
    const std::string name = key.substr(std::size(kPrefix) - 1);
    if (std::find(std::begin(kKnown), std::end(kKnown), name) == std::end(kKnown)) {
      return BadInput("metadata key " + Quote(key) +
                      " is unknown; the rotation cannot be applied without it");
    }
  }
  return {};
}

Status RequireText(const Metadata& meta, const char* name, const std::string& expected) {
  TRINE_ASSIGN(const std::string value, meta.String(Key(name)));
  if (value == expected) return {};
  return BadInput(Named(name) + " is " + Quote(value) + "; '" + expected + "' is supported");
}

// "blk.7.ffn_up.weight" is of kind "ffn_up".
bool IsRotatable(const std::string& name) {
  constexpr const char* kKinds[] = {"attn_q",      "attn_k",   "attn_v", "attn_qkv", "attn_gate",
                                    "attn_output", "ffn_gate", "ffn_up", "ffn_down", "ssm_out"};
  if (name == kHead) return true;
  const size_t dot = name.find('.', 4);
  if (!name.starts_with("blk.") || dot == std::string::npos) return false;
  const std::string rest = name.substr(dot + 1);
  return std::any_of(std::begin(kKinds), std::end(kKinds),
                     [&](const char* kind) { return rest == std::string(kind) + ".weight"; });
}

}  // namespace

Result<Rotation> Rotation::Read(const WeightStore& store) {
  const Metadata& meta = store.metadata();
  Rotation rotation;
  const auto first = meta.entries().lower_bound(kPrefix);
  if (first == meta.entries().end() || !first->first.starts_with(kPrefix)) return rotation;
  if (meta.Find(Key("version")) == nullptr) {
    return BadInput("metadata has " + Quote(first->first) + " but not " + Named("version") +
                    "; the file is damaged, get it again");
  }
  TRINE_ASSIGN(const int64_t version, meta.Int(Key("version")));
  if (version != 1 && version != 2) {
    return BadInput(Named("version") + " is " + std::to_string(version) +
                    "; 1 and 2 are supported");
  }
  TRINE_RETURN_IF_ERROR(CheckKeys(meta));
  TRINE_ASSIGN(rotation.block_, meta.Int(Key("block_size")));
  const int64_t block = rotation.block_;
  if (block < kLeastBlock || block > kMostBlock || (block & (block - 1)) != 0) {
    return BadInput(Named("block_size") + " is " + std::to_string(block) +
                    "; a power of two from " + std::to_string(kLeastBlock) + " to " +
                    std::to_string(kMostBlock) + " expected");
  }
  TRINE_RETURN_IF_ERROR(RequireText(meta, "transform", "normalized-sylvester-walsh-hadamard"));
  TRINE_RETURN_IF_ERROR(RequireText(meta, "axis", "input-last-dimension"));
  TRINE_ASSIGN(rotation.delta_grouped_, meta.BoolOr(Key("gdn_v_grouped"), false));
  TRINE_RETURN_IF_ERROR(rotation.ReadSigns(meta));
  TRINE_RETURN_IF_ERROR(rotation.ReadWeights(store, version));
  return rotation;
}

Status Rotation::ReadSigns(const Metadata& meta) {
  TRINE_ASSIGN(const std::string mode, meta.String(Key("sign_mode")));
  TRINE_ASSIGN(const std::vector<int64_t>* widths, meta.Ints(Key("sign_widths")));
  TRINE_ASSIGN(const std::vector<int64_t>* values, meta.Ints(Key("sign_values")));
  if (mode == "identity") {
    if (values == nullptr || values->empty()) return {};
    return BadInput(Named("sign_mode") + " is 'identity', but there are " +
                    std::to_string(values->size()) + " " + Named("sign_values"));
  }
  if (mode != "explicit") {
    return BadInput(Named("sign_mode") + " is " + Quote(mode) +
                    "; 'identity' and 'explicit' are supported");
  }
  if (widths == nullptr || values == nullptr) {
    return BadInput(Named(widths == nullptr ? "sign_widths" : "sign_values") +
                    " is missing; sign mode 'explicit' needs it");
  }
  explicit_ = true;
  auto next = values->begin();
  for (const int64_t width : *widths) {
    if (width <= 0 || width % block_ != 0) {
      return BadInput(Named("sign_widths") + " holds " + std::to_string(width) +
                      "; positive multiples of the block size " + std::to_string(block_) +
                      " expected");
    }
    if (width > values->end() - next) break;
    if (!signs_.emplace(width, std::vector<float>(next, next + width)).second) {
      return BadInput(Named("sign_widths") + " holds " + std::to_string(width) + " twice");
    }
    next += width;
  }
  int64_t total = 0;
  for (const int64_t width : *widths) total += std::min(width, int64_t{1} << 40);
  if (total != std::ssize(*values)) {
    return BadInput(Named("sign_values") + " has " + std::to_string(values->size()) +
                    " entries; the widths of " + Named("sign_widths") + " add up to " +
                    std::to_string(total));
  }
  const auto bad = std::find_if(values->begin(), values->end(),
                                [](int64_t value) { return value != 1 && value != -1; });
  if (bad == values->end()) return {};
  return BadInput(Named("sign_values") + " holds " + std::to_string(*bad) + " at entry " +
                  std::to_string(bad - values->begin()) + "; 1 and -1 are possible");
}

Status Rotation::ReadWeights(const WeightStore& store, int64_t version) {
  const Metadata& meta = store.metadata();
  TRINE_ASSIGN(const std::vector<std::string>* names, meta.Strings(Key("weight_names")));
  if (names == nullptr || names->empty()) {
    return BadInput(Named("weight_names") + " is missing or empty; a rotation lists its weights");
  }
  for (const std::string& name : *names) {
    if (!weights_.insert(name).second) {
      return BadInput(Named("weight_names") + " lists " + Quote(name) + " twice");
    }
    if (!IsRotatable(name)) {
      return BadInput(Named("weight_names") + " lists " + Quote(name) +
                      "; a rotation of that kind of weight is not supported");
    }
    TRINE_RETURN_IF_ERROR(CheckWeight(store, name));
  }
  TRINE_ASSIGN(const std::vector<std::string>* inverse, meta.Strings(Key("inverse_weight_names")));
  for (const std::string& name : inverse == nullptr ? std::vector<std::string>{} : *inverse) {
    if (name != kEmbedding) {
      return BadInput(Named("inverse_weight_names") + " lists " + Quote(name) + "; only '" +
                      kEmbedding + "' is supported");
    }
    TRINE_RETURN_IF_ERROR(CheckWeight(store, name));
    embedding_ = true;
  }
  TRINE_ASSIGN(const bool tied, meta.BoolOr(Key("tied_output"), false));
  const bool has_head = store.Find(kHead) != nullptr;
  if (version == 1 && tied) {
    return BadInput(Named("tied_output") + " is true; version 1 has no tied output");
  }
  if (version == 1 && embedding_ && !has_head) {
    return BadInput("'" + std::string(kEmbedding) + "' is rotated and '" + kHead +
                    "' is missing; version 1 of the rotation has no tied output");
  }
  if (version == 2 && (!tied || has_head || !embedding_)) {
    return BadInput(Named("version") + " is 2; it needs " + Named("tied_output") + " true, '" +
                    kEmbedding + "' in " + Named("inverse_weight_names") + " and no '" + kHead +
                    "'");
  }
  if (tied) weights_.insert(kEmbedding);  // as the head
  return {};
}

Status Rotation::CheckWeight(const WeightStore& store, const std::string& name) const {
  const TensorInfo* tensor = store.Find(name);
  if (tensor == nullptr) {
    return BadInput("the rotation lists " + Quote(name) + ", which the file does not have");
  }
  const std::string width = std::to_string(tensor->cols());
  if (tensor->cols() % block_ != 0) {
    return BadInput("the rotation lists " + Quote(name) + ", whose rows of " + width +
                    " values are not whole blocks of " + std::to_string(block_));
  }
  if (explicit_ && signs_.count(tensor->cols()) == 0) {
    return BadInput(Named("sign_widths") + " has no " + width + ", the width of " + Quote(name));
  }
  return {};
}

std::vector<float> Rotation::Signs(int64_t width) const {
  const auto it = signs_.find(width);
  return it == signs_.end() ? std::vector<float>(static_cast<size_t>(width), 1.0f) : it->second;
}

}  // namespace trine
