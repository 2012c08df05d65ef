// A Hugging Face checkpoint as ModelFiles: its tensors under GGUF's names, its configuration under
// GGUF's keys.
#include <algorithm>
#include <filesystem>

#include "src/core/quote.h"
#include "src/weights/hf_config.h"
#include "src/weights/hf_names.h"
#include "src/weights/safetensors.h"
#include "src/weights/weight_store.h"

namespace trine {
namespace {

namespace fs = std::filesystem;

// The file that lists a folder's tensors.
Result<std::string> FindWeights(const std::string& folder) {
  std::error_code ignored;
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    const fs::path path = fs::path(folder) / name;
    if (fs::exists(path, ignored)) return path.string();
  }
  return BadInput(folder +
                  " has neither model.safetensors nor model.safetensors.index.json; give "
                  "a .gguf file or a folder of Hugging Face's with safetensors");
}

Result<DType> TypeOf(const SafetensorsTensor& tensor) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (tensor.dtype == Info(type).name) return type;
  }
  return BadInput("tensor " + Quote(tensor.name) + " is of type " + Quote(tensor.dtype) +
                  "; F32, F16 and BF16 are read");
}

// As GGUF has it: contiguous size first, and no size 1 within ([channels, 1, taps]).
Result<std::vector<int64_t>> ShapeOf(const SafetensorsTensor& tensor) {
  std::vector<int64_t> shape;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    const bool inner = i > 0 && i + 1 < tensor.shape.size();
    if (!inner || tensor.shape[i] != 1) shape.push_back(tensor.shape[i]);
    if (tensor.shape[i] < 1) {
      return BadInput("tensor " + Quote(tensor.name) + " has a size of " +
                      std::to_string(tensor.shape[i]) + "; sizes are at least 1");
    }
  }
  if (shape.empty()) shape.push_back(1);
  return shape;
}

// What is computed in 32 bits may be stored so, whatever is declared of the rest.
Status CheckDeclared(const HfConfig& config, const std::string& name, const TensorInfo& tensor) {
  const bool matrix = tensor.shape.size() > 1 && !tensor.name.ends_with("ssm_conv1d.weight");
  if (!matrix || !config.dtype || tensor.type == *config.dtype || tensor.type == DType::kF32) {
    return {};
  }
  return BadInput("tensor " + Quote(name) + " is stored as " + Info(tensor.type).name +
                  ", config.json's dtype says " + Info(*config.dtype).name +
                  "; one of them is wrong: correct dtype, or get the files again");
}

Result<TensorInfo> Translate(const HfConfig& config, const SafetensorsTensor& stored) {
  TensorInfo tensor;
  const std::optional<HfName> known = ToGguf(config.architecture, stored.name);
  tensor.name = known ? known->name : stored.name;  // a plan will say that it has no place
  if (known) tensor.stored_as = known->stored_as;
  TRINE_ASSIGN(tensor.type, TypeOf(stored));
  TRINE_ASSIGN(tensor.shape, ShapeOf(stored));
  tensor.file = stored.file;
  tensor.offset = stored.offset;
  tensor.bytes = stored.bytes;
  TRINE_RETURN_IF_ERROR(CheckDeclared(config, stored.name, tensor));
  return tensor;
}

Status AddTensors(const HfConfig& config, const std::vector<SafetensorsTensor>& stored,
                  ModelFiles& model) {
  for (const SafetensorsTensor& entry : stored) {
    // A head that is stored counts, as in transformers, even where config.json ties it.
    const bool buffer = !ToGguf(config.architecture, entry.name) && !TypeOf(entry).ok();
    if (IsOutsideTextModel(entry.name) || buffer) {
      model.left_out.push_back(entry.name);
      continue;
    }
    TRINE_ASSIGN(TensorInfo tensor, Translate(config, entry));
    model.tensors.push_back(std::move(tensor));
  }
  std::vector<std::string_view> names;
  for (const TensorInfo& tensor : model.tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    return BadInput("two tensors are " + Quote(*twice) + " of the model, under several prefixes");
  }
  const auto has = [&](std::string_view name) {
    return std::binary_search(names.begin(), names.end(), name);
  };
  if (!config.tied && !has("output.weight")) {
    return BadInput(
        "tensor 'lm_head.weight' is missing, and config.json does not say "
        "tie_word_embeddings; get the files again");
  }
  return {};
}

// transformers' llama has biases where config.json says so, whatever is stored.
Status CheckBiases(const HfConfig& config, const std::vector<SafetensorsTensor>& stored) {
  if (config.architecture != "llama") return {};
  const auto is_bias = [](const SafetensorsTensor& tensor) {
    return tensor.name.find(".self_attn.") != std::string::npos && tensor.name.ends_with(".bias");
  };
  const auto found = std::find_if(stored.begin(), stored.end(), is_bias);
  const int64_t count = std::count_if(stored.begin(), stored.end(), is_bias);
  TRINE_ASSIGN(const int64_t layers, config.metadata.Int("llama.block_count"));
  if (!config.biases && found != stored.end()) {
    return BadInput("tensor " + Quote(found->name) +
                    " is there, config.json's attention_bias is not true; correct it, or get the "
                    "files again");
  }
  if (config.biases && count / 4 < layers) {
    return BadInput("config.json's attention_bias is true, but " + std::to_string(count) + " of " +
                    std::to_string(layers) + " x 4 biases are there; get the files again");
  }
  return {};
}

Status CheckVocabulary(const HfConfig& config, const ModelFiles& model) {
  for (const TensorInfo& tensor : model.tensors) {
    if (tensor.name != "token_embd.weight" || tensor.rows() == config.vocab) continue;
    return BadInput("the embedding has " + std::to_string(tensor.rows()) +
                    " rows, config.json's vocab_size says " + std::to_string(config.vocab) +
                    "; correct it, or get the files again");
  }
  return {};
}

}  // namespace

Result<ModelFiles> ReadHuggingFace(const std::string& path) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  const std::string folder = is_folder ? path : fs::path(path).parent_path().string();
  std::string listing = path;
  if (is_folder) {
    TRINE_ASSIGN(listing, FindWeights(folder));
  }
  ModelFiles model;
  model.name = path;
  model.conventions = kHfConventions;
  model.tokenizer_folder = folder.empty() ? "." : folder;
  TRINE_ASSIGN(HfConfig config,
               ReadHfConfig((fs::path(model.tokenizer_folder) / "config.json").string()));
  TRINE_ASSIGN(SafetensorsFiles stored, ReadSafetensors(listing));
  Status added = AddTensors(config, stored.tensors, model);
  if (added.ok()) added = CheckBiases(config, stored.tensors);
  if (added.ok()) added = CheckVocabulary(config, model);
  if (!added.ok()) return BadInput(path + ": " + added.message());
  model.files = std::move(stored.files);
  model.metadata = std::move(config.metadata);
  model.metadata.Insert("general.name",
                        fs::canonical(folder.empty() ? "." : folder, ignored).filename().string());
  return model;
}

}  // namespace trine
