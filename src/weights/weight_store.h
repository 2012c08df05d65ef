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

namespace trine {

struct TensorInfo {
  std::string name;
  DType type = DType::kF32;
  std::vector<int64_t> shape;  // as stored: shape[0] is the contiguous row length
  int file = 0;                // index into the store's files
  int64_t offset = 0;          // of its first byte in that file
  int64_t bytes = 0;

  int64_t cols() const { return shape[0]; }
  int64_t rows() const { return bytes / RowBytes(type, cols()); }
  int64_t elements() const { return rows() * cols(); }
};

// "[32, 40]"
std::string ShapeText(const std::vector<int64_t>& shape);

// The order in which a container stores what belongs to the value heads of Gated DeltaNet, rep of
// them for each key head k: grouped, head k * rep + r (Hugging Face), or tiled, r * key heads + k
// (GGUF).
enum class ValueHeadOrder { kGrouped, kTiled };

// What a container's reader yields. Without files it is a description: nothing can be read.
struct ModelFiles {
  std::string name;  // for messages: the path of the first file
  std::vector<File> files;
  Metadata metadata;
  std::vector<TensorInfo> tensors;
  ValueHeadOrder value_heads = ValueHeadOrder::kTiled;
};

class WeightStore {
 public:
  explicit WeightStore(ModelFiles files);

  const std::string& name() const { return files_.name; }
  ValueHeadOrder value_heads() const { return files_.value_heads; }
  const Metadata& metadata() const { return files_.metadata; }
  const std::vector<TensorInfo>& tensors() const { return files_.tensors; }
  const TensorInfo* Find(std::string_view name) const;  // nullptr if absent
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

// Opens a model: a .gguf file, or the first part of a split one (PREFIX-00001-of-0000N.gguf). Every
// header is checked against the size of its file before anything is allocated.
Result<std::unique_ptr<WeightStore>> OpenWeights(const std::string& path);

// GGUF versions 2 and 3, little endian, single or split. Source: the GGUF specification in
// ggml-org/ggml.
Result<ModelFiles> ReadGguf(const std::string& path);

}  // namespace trine
