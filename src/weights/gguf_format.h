// Numbers of the GGUF container that its reader and its writer share. Source: the GGUF
// specification in ggml-org/ggml.
#pragma once

#include <cstdint>

namespace trine::gguf {

// Types of metadata values.
enum ValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12
};

inline constexpr int64_t kMaxNameBytes = 63;  // of a tensor
inline constexpr int64_t kMaxDims = 4;
inline constexpr int64_t kDefaultAlignment = 32;  // of tensor data

constexpr int64_t AlignUp(int64_t n, int64_t alignment) {
  return (n + alignment - 1) / alignment * alignment;
}

}  // namespace trine::gguf
