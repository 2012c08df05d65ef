// Rows of weights between values and the bytes of a type: the writers' side of what the Backend
// reads. Blocks lie along a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/formats/ternary.h"
#include "kernels/tensor.h"

namespace trine {

// Whether EncodeRow takes it: F32, F16, BF16, Q8_0, Q4_0, Q4_1.
bool EncodesFloats(DType type);

// f32 values to one stored row, RowBytes(type, values.size()) bytes, rounded to nearest. false if a
// value is not finite or, where the type has f16 in it, beyond f16's range.
bool EncodeRow(DType type, std::span<const float> values, std::byte* out);

// Two-bit codes between packings, as units of 64 columns, each with a scale.
inline constexpr int64_t kCodedUnit = 64;
using CodedRow = std::vector<formats::TwoBitUnit>;  // [cols / 64]

// A row of a type that IsTernary.
void DecodeCodes(DType type, const std::byte* packed, CodedRow& row);

// f32 values that are 0 or, unit by unit, plus or minus one number that f16 holds. false if they
// are not.
bool FindCodes(std::span<const float> values, CodedRow& row);

// A row of a type that IsTernary; the values stay what they are. false if the type cannot hold
// them: two scales in one of its blocks, a code beyond its own.
bool EncodeCodes(DType type, const CodedRow& row, std::byte* out);

}  // namespace trine
