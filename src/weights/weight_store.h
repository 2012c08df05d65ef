// WeightStore: the tensors and metadata of a model's files, whatever their container. It reads
// headers when opened and bytes when asked, by position (no mapping, no read-ahead), so that a rank
// touches only what it needs. It knows no rank and no model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/tensor.h"
#include "src/core/file.h"
#include "src/core/metadata.h"
#include "src/core/result.h"
#include "src/weights/conventions.h"

namespace trine {

struct TensorInfo {
  std::string name;  // GGUF's, whatever the container
  DType type = DType::kF32;
  std::vector<int64_t> shape;  // as stored: shape[0] is the contiguous row length
  int file = 0;                // index into the store's files
  int64_t offset = 0;          // of its first byte in that file
  int64_t bytes = 0;
  StoredAs stored_as = StoredAs::kValue;

  int64_t cols() const { return shape[0]; }
  int64_t rows() const { return bytes / RowBytes(type, cols()); }
  int64_t elements() const { return rows() * cols(); }
};

// "[32, 40]"
std::string ShapeText(const std::vector<int64_t>& shape);

// What a container's reader yields. Without files it is a description: nothing can be read.
struct ModelFiles {
  std::string name;  // for messages: the path of the first file, or of the folder
  std::vector<File> files;
  Metadata metadata;  // GGUF's keys, whatever the container
  std::vector<TensorInfo> tensors;
  Conventions conventions;
  std::vector<std::string> left_out;  // names of tensors that are no part of a language model
  std::string tokenizer_folder;       // of tokenizer.json; empty: the tokenizer is in the metadata
};

class WeightStore {
 public:
  explicit WeightStore(ModelFiles files);

  const std::string& name() const { return files_.name; }
  const Conventions& conventions() const { return files_.conventions; }
  const std::vector<std::string>& left_out() const { return files_.left_out; }
  const std::string& tokenizer_folder() const { return files_.tokenizer_folder; }
  const Metadata& metadata() const { return files_.metadata; }
  const std::vector<TensorInfo>& tensors() const { return files_.tensors; }
  const TensorInfo* Find(std::string_view name) const;  // nullptr if absent
  // What the container itself calls a tensor; for messages.
  std::string NameInFile(const std::string& name) const;
  // As Find; an error that names the file if the tensor is absent.
  Result<const TensorInfo*> Require(const std::string& name) const;
  // And an error that says both shapes if it has another one.
  Result<const TensorInfo*> Require(const std::string& name,
                                    const std::vector<int64_t>& shape) const;
  const std::vector<File>& files() const { return files_.files; }

  // Bytes [begin, begin + n) of a tensor. Blocks on the disk; thread-safe.
  Status Read(const TensorInfo& tensor, int64_t begin, int64_t n, std::byte* out) const;

  // Whole stored rows, packed one after another: out holds rows.size() * RowBytes. Thread-safe.
  Status ReadRows(const TensorInfo& tensor, std::span<const int32_t> rows, std::byte* out) const;

 private:
  ModelFiles files_;
  std::unordered_map<std::string_view, size_t> index_;  // names live in files_.tensors
};

// Opens a model: a .gguf file, the first part of a split one (PREFIX-00001-of-0000N.gguf), or a
// Hugging Face folder (or its .safetensors file, or the index). Every header is checked against the
// size of its file before anything is allocated.
Result<std::unique_ptr<WeightStore>> OpenWeights(const std::string& path);

// GGUF versions 2 and 3, little endian, single or split. Source: the GGUF specification in
// ggml-org/ggml.
Result<ModelFiles> ReadGguf(const std::string& path);

// Hugging Face: config.json, and model.safetensors or shards with model.safetensors.index.json;
// see hf_config.h and hf_names.h for what becomes GGUF's keys and names. `path`: the folder, or one
// of these two files. Tensors are F32, F16 or BF16. A matrix that is stored in another 16-bit type
// than the configuration declares, or in 16 bits where it declares 32, is an error.
Result<ModelFiles> ReadHuggingFace(const std::string& path);

}  // namespace trine
