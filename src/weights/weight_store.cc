#include "src/weights/weight_store.h"

#include <filesystem>

#include "src/weights/hf_names.h"

namespace trine {

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

WeightStore::WeightStore(ModelFiles files) : files_(std::move(files)) {
  for (size_t i = 0; i < files_.tensors.size(); ++i) index_.emplace(files_.tensors[i].name, i);
}

const TensorInfo* WeightStore::Find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &files_.tensors[it->second];
}

std::string WeightStore::NameInFile(const std::string& name) const {
  if (files_.tokenizer_folder.empty()) return name;
  const Result<std::string> architecture = files_.metadata.String("general.architecture");
  const std::optional<HfName> found = architecture.ok() ? ToHf(*architecture, name) : std::nullopt;
  return found ? found->name : name;
}

Result<const TensorInfo*> WeightStore::Require(const std::string& name) const {
  if (const TensorInfo* tensor = Find(name)) return tensor;
  return BadInput(files_.name + ": tensor '" + NameInFile(name) +
                  "' is missing; the file is incomplete, get it again");
}

Result<const TensorInfo*> WeightStore::Require(const std::string& name,
                                               const std::vector<int64_t>& shape) const {
  TRINE_ASSIGN(const TensorInfo* tensor, Require(name));
  if (tensor->shape == shape) return tensor;
  return BadInput(files_.name + ": tensor '" + NameInFile(name) + "' has shape " +
                  ShapeText(tensor->shape) + "; the model's metadata asks for " + ShapeText(shape));
}

Status WeightStore::Read(const TensorInfo& tensor, int64_t begin, int64_t n, std::byte* out) const {
  return files_.files[static_cast<size_t>(tensor.file)].Read(tensor.offset + begin, n, out);
}

Status WeightStore::ReadRows(const TensorInfo& tensor, std::span<const int32_t> rows,
                             std::byte* out) const {
  const int64_t row_bytes = RowBytes(tensor.type, tensor.cols());
  for (const int32_t row : rows) {
    TRINE_RETURN_IF_ERROR(Read(tensor, row * row_bytes, row_bytes, out));
    out += row_bytes;
  }
  return {};
}

Result<std::unique_ptr<WeightStore>> OpenWeights(const std::string& path) {
  std::error_code ignored;
  const bool hugging_face = std::filesystem::is_directory(path, ignored) ||
                            path.ends_with(".safetensors") || path.ends_with(".json");
  TRINE_ASSIGN(ModelFiles files, hugging_face ? ReadHuggingFace(path) : ReadGguf(path));
  return std::make_unique<WeightStore>(std::move(files));
}

}  // namespace trine
