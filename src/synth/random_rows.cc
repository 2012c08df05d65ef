#include "src/synth/random_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/formats.h"
#include "kernels/formats/encode.h"
#include "kernels/formats/ternary_encode.h"
#include "src/synth/random_stream.h"

namespace trine {
namespace {

using formats::TwoBitUnit;

// Eight base-3 digits of w / 65536: all 3^8 numbers are about equally likely.
std::vector<uint16_t> MakeTrits() {
  std::vector<uint16_t> trits(1 << 16);
  for (uint32_t w = 0; w < trits.size(); ++w) {
    uint32_t rest = w * 6561 >> 16, codes = 0;
    for (int i = 0; i < 8; ++i, rest /= 3) codes |= rest % 3 << (2 * i);
    trits[w] = static_cast<uint16_t>(codes);
  }
  return trits;
}

// 128 columns; the scale lies between 3/4 and 5/4 of `scale`.
template <typename Codes>
TwoBitUnit DrawGroup(RandomStream& random, float scale, const Codes& codes) {
  TwoBitUnit group;
  group.scale = FloatToF16(scale * (0.75f + 0.5f * random.Uniform()));
  for (int i = 0; i < 16; i += 4) {
    const uint64_t bits = random.Next();
    for (int k = 0; k < 4; ++k) {
      group.eighths[i + k] = codes(static_cast<uint16_t>(bits >> (16 * k)));
    }
  }
  return group;
}

// The blocks of one or two groups of 128 columns.
template <typename Format>
void PutBlocks(const TwoBitUnit* groups, std::byte* out) {
  typename Format::Block block;
  if constexpr (Format::kUnit == 64) {  // both halves have the scale of the group
    for (int half = 0; half < 2; ++half, out += sizeof block) {
      TwoBitUnit unit;
      unit.scale = groups->scale;
      std::copy_n(groups->eighths + 8 * half, 8, unit.eighths);
      formats::Encode(&unit, block);
      std::memcpy(out, &block, sizeof block);
    }
  } else {
    formats::Encode(groups, block);
    std::memcpy(out, &block, sizeof block);
  }
}

template <typename Format>
void FillTernary(const std::vector<uint16_t>& trits, float deviation, int64_t cols,
                 RandomStream random, std::byte* out) {
  constexpr bool kSigns = Format::kType == DType::kQ1_0;
  constexpr int kSpan = std::max(128, Info(Format::kType).block_elems);
  constexpr int kGroups = kSpan / 128;
  const float scale = kSigns ? deviation : deviation * 1.2247449f;  // a trit's deviation: sqrt(2/3)
  const auto codes = [&](uint16_t bits) {
    return kSigns ? static_cast<uint16_t>((bits & 0x5555u) << 1) : trits[bits];
  };
  for (int64_t c = 0; c < cols; c += kSpan, out += RowBytes(Format::kType, kSpan)) {
    TwoBitUnit groups[kGroups];
    for (TwoBitUnit& group : groups) {
      group = DrawGroup(random, scale, codes);
      group.scale = groups[0].scale;
    }
    PutBlocks<Format>(groups, out);
  }
}

float DrawVectorElement(Fill fill, RandomStream& random) {
  const double u = static_cast<double>(random.Uniform());
  if (fill == Fill::kNorm) return static_cast<float>(0.8 + 0.4 * u);
  if (fill == Fill::kDecay) return -static_cast<float>(std::exp2(4 * u));
  const double step = 0.001 * std::pow(100.0, u);
  return static_cast<float>(std::log(std::expm1(step)));  // softplus of it is step
}

// The next values of a row; n is a multiple of 4.
void Draw(const SynthTensor& tensor, RandomStream& random, float* out, int n) {
  for (int i = 0; i < n; i += 4) {
    if (tensor.fill == Fill::kCentred) {
      random.Gaussians(tensor.deviation, out + i);
    } else {
      for (int k = 0; k < 4; ++k) out[i + k] = DrawVectorElement(tensor.fill, random);
    }
  }
}

template <typename Format>
void FillPlain(const SynthTensor& tensor, RandomStream random, std::byte* out) {
  constexpr int kTile = 4;
  for (int64_t c = 0; c < tensor.info.cols(); c += kTile) {
    float values[kTile];
    typename Format::Element elements[kTile];
    Draw(tensor, random, values, kTile);
    for (int i = 0; i < kTile; ++i) elements[i] = formats::ToElement(Format{}, values[i]);
    std::memcpy(out, elements, sizeof elements);
    out += sizeof elements;
  }
}

template <typename Format>
void FillBlocks(const SynthTensor& tensor, RandomStream random, std::byte* out) {
  typename Format::Block block;
  for (int64_t c = 0; c < tensor.info.cols(); c += Format::kUnit, out += sizeof block) {
    float values[Format::kUnit];
    Draw(tensor, random, values, Format::kUnit);
    formats::Encode(values, block);
    std::memcpy(out, &block, sizeof block);
  }
}

// Those of the block formats that have a writer.
using WritableBlocks = formats::FormatList<formats::Q8_0, formats::Q4_0, formats::Q4_1>;

}  // namespace

RandomRows::RandomRows(uint64_t seed) : seed_(seed), trits_(MakeTrits()) {}

void RandomRows::Fill(const SynthTensor& tensor, int64_t index, int64_t row, std::byte* out) const {
  const RandomStream random(seed_, index, row);
  const DType type = tensor.info.type;
  const bool found =
      formats::VisitFormat<formats::TwoBitFormats>(type,
                                                   [&](auto format) {
                                                     FillTernary<decltype(format)>(
                                                         trits_, tensor.deviation,
                                                         tensor.info.cols(), random, out);
                                                   }) ||
      formats::VisitFormat<formats::PlainFormats>(
          type, [&](auto format) { FillPlain<decltype(format)>(tensor, random, out); }) ||
      formats::VisitFormat<WritableBlocks>(
          type, [&](auto format) { FillBlocks<decltype(format)>(tensor, random, out); });
  TRINE_CHECK(found, Info(type).name);
}

}  // namespace trine
