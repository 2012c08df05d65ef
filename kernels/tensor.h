// What a tensor is: an element or block type, and a view of a matrix in memory. The ground floor of
// Trine: it knows neither files nor ranks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trine {

// Storage types of weights. Block types pack kBlockElems values of one row with their scales.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kTQ1_0,  // from here on: codes -1, 0, 1 (and 2, where two bits hold them), see IsTernary
  kTQ2_0,
  kQ1_0,
  kQ2_0,
  kPQ2_0,
  kPTQ1_0
};

struct DTypeInfo {
  DType type;
  const char* name;     // as in GGUF tools: "Q4_K"
  int32_t ggml_id;      // the type's public number (ggml_type)
  int32_t block_elems;  // values in a block; rows are whole blocks
  int32_t block_bytes;
};

// The one table, indexed by DType. formats.h asserts that it agrees with the block structs.
inline constexpr DTypeInfo kDTypes[] = {
    {DType::kF32, "F32", 0, 1, 4},
    {DType::kF16, "F16", 1, 1, 2},
    {DType::kBF16, "BF16", 30, 1, 2},
    {DType::kQ8_0, "Q8_0", 8, 32, 34},
    {DType::kQ4_0, "Q4_0", 2, 32, 18},
    {DType::kQ4_1, "Q4_1", 3, 32, 20},
    {DType::kQ4_K, "Q4_K", 12, 256, 144},
    {DType::kQ5_K, "Q5_K", 13, 256, 176},
    {DType::kQ6_K, "Q6_K", 14, 256, 210},
    {DType::kTQ1_0, "TQ1_0", 34, 256, 54},
    {DType::kTQ2_0, "TQ2_0", 35, 256, 66},
    {DType::kQ1_0, "Q1_0", 41, 128, 18},
    {DType::kQ2_0, "Q2_0", 42, 64, 18},
    {DType::kPQ2_0, "PQ2_0", 142, 128, 34},
    {DType::kPTQ1_0, "PTQ1_0", 143, 128, 28},
};

inline constexpr const DTypeInfo& Info(DType type) {
  return kDTypes[static_cast<int>(type)];
}

// Formats of two-bit codes, which are multiplied by 8-bit activations.
inline constexpr bool IsTernary(DType type) {
  return type >= DType::kTQ1_0;
}

// Bytes of one row of `cols` values; cols is a multiple of the block.
inline constexpr int64_t RowBytes(DType type, int64_t cols) {
  return cols / Info(type).block_elems * Info(type).block_bytes;
}

// A view: never owns, trivially copyable. Row r is data + r * stride, cols elements wide.
template <typename T>
struct MatrixView {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements from one row to the next

  T* row(int64_t r) const { return data + r * stride; }
  MatrixView Rows(int64_t first, int64_t n) const { return {row(first), n, cols, stride}; }
};

using F32View = MatrixView<float>;
using I64View = MatrixView<int64_t>;

}  // namespace trine
