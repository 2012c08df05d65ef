#include "src/weights/row_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/formats.h"
#include "kernels/formats/encode.h"
#include "kernels/formats/ternary_encode.h"

namespace trine {
namespace {

using formats::TwoBitUnit;
using EncodedBlocks = formats::FormatList<formats::Q8_0, formats::Q4_0, formats::Q4_1>;

constexpr uint16_t kZeroEighth = 0x5555;  // eight codes 1
constexpr int64_t kEighths = kCodedUnit / 8;
constexpr float kMostF16 = 65504;

bool AllZero(const TwoBitUnit& unit) {
  return std::all_of(unit.eighths, unit.eighths + kEighths,
                     [](uint16_t eighth) { return eighth == kZeroEighth; });
}

// Units [0, n) as one with their columns side by side. A unit of zeros goes with any scale. false
// if the scales differ.
bool Join(const TwoBitUnit* units, int64_t n, uint16_t scale, TwoBitUnit& out) {
  bool same = true;
  out.scale = scale;
  for (int64_t i = 0; i < n; ++i) {
    same &= units[i].scale == scale || AllZero(units[i]);
    std::copy_n(units[i].eighths, kEighths, out.eighths + kEighths * i);
  }
  return same;
}

template <typename Format>
bool EncodeBlocks(const CodedRow& row, std::byte* out) {
  typename Format::Block block;
  constexpr int64_t kPerBlock = Info(Format::kType).block_elems / kCodedUnit;
  constexpr int64_t kPerUnit = Format::kUnit / kCodedUnit;
  bool holds = true;
  for (size_t first = 0; first < row.size(); first += kPerBlock, out += sizeof block) {
    const TwoBitUnit* units = row.data() + first;
    const auto* scaled = std::find_if_not(units, units + kPerBlock, AllZero);
    const uint16_t scale = scaled == units + kPerBlock ? units->scale : scaled->scale;
    TwoBitUnit joined[kPerBlock / kPerUnit];
    for (int64_t i = 0; i < kPerBlock / kPerUnit; ++i) {
      holds &= Join(units + i * kPerUnit, kPerUnit, scale, joined[i]);
    }
    holds &= formats::Encode(joined, block);
    std::memcpy(out, &block, sizeof block);
  }
  return holds;
}

template <typename Format>
void DecodeBlocks(const std::byte* packed, CodedRow& row) {
  typename Format::Block block;
  constexpr int kUnits = Info(Format::kType).block_elems / Format::kUnit;
  constexpr int64_t kPerUnit = Format::kUnit / kCodedUnit;
  for (size_t at = 0; at < row.size(); packed += sizeof block) {
    std::memcpy(&block, packed, sizeof block);
    for (int u = 0; u < kUnits; ++u) {
      TwoBitUnit unit;
      Format::Decode(block, u, unit);
      for (int64_t i = 0; i < kPerUnit; ++i, ++at) {
        row[at].scale = unit.scale;
        std::copy_n(unit.eighths + kEighths * i, kEighths, row[at].eighths);
      }
    }
  }
}

template <typename Format>
void EncodeElements(std::span<const float> values, std::byte* out) {
  for (const float value : values) {
    const typename Format::Element element = formats::ToElement(Format{}, value);
    std::memcpy(out, &element, sizeof element);
    out += sizeof element;
  }
}

template <typename Format>
void EncodeFloatBlocks(std::span<const float> values, std::byte* out) {
  typename Format::Block block;
  for (size_t c = 0; c < values.size(); c += Format::kUnit, out += sizeof block) {
    formats::Encode(values.data() + c, block);
    std::memcpy(out, &block, sizeof block);
  }
}

}  // namespace

bool EncodesFloats(DType type) {
  return formats::VisitFormat<formats::PlainFormats>(type, [](auto) {}) ||
         formats::VisitFormat<EncodedBlocks>(type, [](auto) {});
}

bool EncodeRow(DType type, std::span<const float> values, std::byte* out) {
  const bool wide = type == DType::kF32 || type == DType::kBF16;
  bool fits = true;
  for (const float value : values) {
    fits &= std::isfinite(value) && (wide || std::abs(value) <= kMostF16);
  }
  formats::VisitFormat<formats::PlainFormats>(
      type, [&](auto format) { EncodeElements<decltype(format)>(values, out); });
  formats::VisitFormat<EncodedBlocks>(
      type, [&](auto format) { EncodeFloatBlocks<decltype(format)>(values, out); });
  return fits;
}

void DecodeCodes(DType type, const std::byte* packed, CodedRow& row) {
  formats::VisitFormat<formats::TwoBitFormats>(
      type, [&](auto format) { DecodeBlocks<decltype(format)>(packed, row); });
}

bool FindCodes(std::span<const float> values, CodedRow& row) {
  bool found = true;
  for (size_t u = 0; u < row.size(); ++u) {
    const float* unit = values.data() + u * kCodedUnit;
    float largest = 0;
    for (int i = 0; i < kCodedUnit; ++i) largest = std::max(largest, std::abs(unit[i]));
    row[u] = {};
    row[u].scale = FloatToF16(largest);
    found &= F16ToFloat(row[u].scale) == largest;
    for (int i = 0; i < kCodedUnit; ++i) {
      found &= unit[i] == 0 || std::abs(unit[i]) == largest;
      row[u].Put(i, unit[i] == 0 ? 1 : unit[i] > 0 ? 2 : 0);
    }
  }
  return found;
}

bool EncodeCodes(DType type, const CodedRow& row, std::byte* out) {
  bool holds = false;
  formats::VisitFormat<formats::TwoBitFormats>(
      type, [&](auto format) { holds = EncodeBlocks<decltype(format)>(row, out); });
  return holds;
}

}  // namespace trine
