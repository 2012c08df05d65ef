// The one list of weight formats. A new format is one file in formats/, its name here and its row
// in kDTypes (tensor.h). Plain formats decode an element, block formats decode units (codes.h),
// two-bit formats units of another kind (ternary.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/formats/k_quants.h"
#include "kernels/formats/plain.h"
#include "kernels/formats/q4.h"
#include "kernels/formats/q8_0.h"
#include "kernels/formats/ternary.h"

namespace trine::formats {

template <typename... Fs>
struct FormatList {};

using PlainFormats = FormatList<F32, F16, BF16>;
using BlockFormats = FormatList<Q8_0, Q4_0, Q4_1, Q4_K, Q5_K, Q6_K>;
using TwoBitFormats = FormatList<TQ1_0, TQ2_0, Q1_0, Q2_0, PQ2_0, PTQ1_0>;

namespace internal {
template <typename... Fs>
constexpr bool BlocksMatchTable(FormatList<Fs...>) {
  return ((sizeof(typename Fs::Block) == static_cast<size_t>(Info(Fs::kType).block_bytes) &&
           Info(Fs::kType).block_elems % Fs::kUnit == 0) &&
          ...);
}
template <typename... Fs>
constexpr bool ElementsMatchTable(FormatList<Fs...>) {
  return ((sizeof(typename Fs::Element) == static_cast<size_t>(Info(Fs::kType).block_bytes)) &&
          ...);
}
static_assert(BlocksMatchTable(BlockFormats{}) && BlocksMatchTable(TwoBitFormats{}) &&
              ElementsMatchTable(PlainFormats{}));

template <typename F, typename... Fs, typename Fn>
bool VisitFormat(FormatList<F, Fs...>, DType type, Fn&& fn) {
  if (type == F::kType) {
    fn(F{});
    return true;
  }
  if constexpr (sizeof...(Fs) > 0) return VisitFormat(FormatList<Fs...>{}, type, fn);
  return false;
}
}  // namespace internal

// Calls fn(Format{}) with the list's format of that type; false if the list has none.
template <typename List, typename Fn>
bool VisitFormat(DType type, Fn&& fn) {
  return internal::VisitFormat(List{}, type, fn);
}

// n values of a plain type to f32; false if the type has blocks.
inline bool DecodePlain(DType type, const std::byte* packed, int64_t n, float* out) {
  return VisitFormat<PlainFormats>(type, [&](auto format) {
    typename decltype(format)::Element element;
    for (int64_t i = 0; i < n; ++i, packed += sizeof element) {
      std::memcpy(&element, packed, sizeof element);
      out[i] = decltype(format)::Decode(element);
    }
  });
}

}  // namespace trine::formats
