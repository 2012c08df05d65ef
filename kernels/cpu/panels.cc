#include "kernels/cpu/panels.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/formats.h"

namespace trine::cpu {
namespace {

constexpr int64_t kPanelRows = 16;
constexpr int64_t kActivationGroup = 32;
constexpr int64_t kReadBytes = int64_t{4} << 20;  // of stored rows, per read

int64_t RoundUp(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

// ---- float panels: element (row r, column k) at [k][r]

template <typename Element>
void PackFloats(const float* values, int64_t cols, int64_t r, uint8_t* panel) {
  auto* to = reinterpret_cast<Element*>(panel);
  for (int64_t k = 0; k < cols; ++k) to[k * kPanelRows + r] = values[k];
}

// F16 and BF16 keep their bits.
bool PackHalves(const uint16_t* bits, uint16_t exponent, int64_t cols, int64_t r, uint8_t* panel) {
  auto* to = reinterpret_cast<uint16_t*>(panel);
  bool finite = true;
  for (int64_t k = 0; k < cols; ++k) {
    finite &= (bits[k] & exponent) != exponent;
    to[k * kPanelRows + r] = bits[k];
  }
  return finite;
}

// ---- coded panels

void PackCodes(const Panels& w, const formats::CodedUnit& unit, int first, int64_t r,
               uint8_t* codes) {
  for (int64_t k = 0; k < w.unit; ++k) {
    const auto code = static_cast<uint8_t>(unit.codes[first + k] + w.code_bias);
    if (w.kind == PanelKind::kByte) {
      codes[(k / 4 * kPanelRows + r) * 4 + k % 4] = code;
    } else {
      const int64_t at = (k / 8 * kPanelRows + r) * 4 + k % 4;
      codes[at] = static_cast<uint8_t>(codes[at] | (k % 8 < 4 ? code : code << 4));
    }
  }
}

// One stored row into lane r. A unit of the panel is a whole unit of the format or a part of one.
template <typename F>
bool PackCodedRow(const Panels& w, const std::byte* row, int64_t skip, int64_t r, uint8_t* panel) {
  constexpr int64_t kBlock = Info(F::kType).block_elems;
  const auto* blocks = reinterpret_cast<const typename F::Block*>(row);
  const int64_t code_bytes = w.unit * (w.kind == PanelKind::kNibble ? 8 : 16);
  const int64_t unit_bytes = code_bytes + (w.has_min ? 128 : 64);
  bool finite = true;
  formats::CodedUnit unit;
  for (int64_t k = 0; k < w.cols; k += w.unit, panel += unit_bytes) {
    const int64_t stored = skip + k, in_block = stored % kBlock;
    F::Decode(blocks[stored / kBlock], static_cast<int>(in_block / F::kUnit), unit);
    PackCodes(w, unit, static_cast<int>(in_block % F::kUnit), r, panel);
    auto* scales = reinterpret_cast<float*>(panel + code_bytes);
    scales[r] = unit.scale;
    if (w.has_min) scales[kPanelRows + r] = unit.min;
    finite &= std::isfinite(unit.scale) && std::isfinite(unit.min);
  }
  return finite;
}

// ---- any stored row to f32

template <typename F>
void DecodeBlocks(const std::byte* row, int64_t skip, int64_t cols, float* out) {
  constexpr int64_t kBlock = Info(F::kType).block_elems;
  const auto* blocks = reinterpret_cast<const typename F::Block*>(row);
  formats::CodedUnit unit;
  for (int64_t k = 0; k < cols;) {
    const int64_t stored = skip + k, in_block = stored % kBlock, in_unit = in_block % F::kUnit;
    F::Decode(blocks[stored / kBlock], static_cast<int>(in_block / F::kUnit), unit);
    const int64_t n = std::min<int64_t>(F::kUnit - in_unit, cols - k);
    for (int64_t j = 0; j < n; ++j) {
      out[k + j] = unit.scale * static_cast<float>(unit.codes[in_unit + j]) + unit.min;
    }
    k += n;
  }
}

void DecodeRow(DType type, const std::byte* row, int64_t skip, int64_t cols, float* out) {
  const int64_t begin = skip * Info(type).block_bytes;
  if (formats::DecodePlain(type, row + begin, cols, out)) return;
  formats::VisitFormat<formats::BlockFormats>(
      type, [&](auto f) { DecodeBlocks<decltype(f)>(row, skip, cols, out); });
}

bool PackRow(const WeightDesc& desc, const Panels& w, const std::byte* row, int64_t r,
             uint8_t* panel, std::vector<float>& values) {
  const auto* halves = reinterpret_cast<const uint16_t*>(row) + desc.skip_cols;
  bool finite = true;
  switch (w.kind) {
    case PanelKind::kF16:
      return PackHalves(halves, 0x7C00, w.cols, r, panel);
    case PanelKind::kBF16:
      return PackHalves(halves, 0x7F80, w.cols, r, panel);
    case PanelKind::kF32:
      DecodeRow(desc.type, row, desc.skip_cols, w.cols, values.data());
      for (float value : values) finite &= std::isfinite(value);
      PackFloats<float>(values.data(), w.cols, r, panel);
      return finite;
    case PanelKind::kNibble:
    case PanelKind::kByte:
      formats::VisitFormat<formats::BlockFormats>(desc.type, [&](auto f) {
        finite = PackCodedRow<decltype(f)>(w, row, desc.skip_cols, r, panel);
      });
      return finite;
  }
  return false;
}

template <typename F>
void PlanCoded(const WeightDesc& desc, Panels& w) {
  w.group = desc.granule == 0 ? kActivationGroup : std::gcd(kActivationGroup, desc.granule);
  w.unit = std::gcd<int64_t>(F::kUnit, w.group);
  if (w.unit % 4 != 0) return;  // granules too narrow for dot products of four: stays float
  const bool nibbles = F::kCodes.bits == 4 && w.unit % 8 == 0;
  w.kind = nibbles ? PanelKind::kNibble : PanelKind::kByte;
  w.code_bias = -F::kCodes.lowest;
  w.has_min = F::kHasMin;
  const int64_t unit_bytes = w.unit * (nibbles ? 8 : 16) + (w.has_min ? 128 : 64);
  w.panel_bytes = desc.cols / w.unit * unit_bytes;
}

}  // namespace

Panels PlanPanels(const WeightDesc& desc, Compute compute) {
  Panels w;
  w.rows = desc.rows;
  w.cols = desc.cols;
  w.granule = desc.granule;
  w.kind = PanelKind::kF32;
  if (compute == Compute::kInteger) {
    if (desc.type == DType::kF16) w.kind = PanelKind::kF16;
    if (desc.type == DType::kBF16) w.kind = PanelKind::kBF16;
    formats::VisitFormat<formats::BlockFormats>(desc.type,
                                                [&](auto f) { PlanCoded<decltype(f)>(desc, w); });
  }
  if (w.kind == PanelKind::kF32) w.panel_bytes = desc.cols * kPanelRows * 4;
  if (w.kind == PanelKind::kF16 || w.kind == PanelKind::kBF16) {
    w.panel_bytes = desc.cols * kPanelRows * 2;
  }
  return w;
}

LoadedWeight RepackWeight(const WeightDesc& desc, Compute compute, const RowReader& reader,
                          ThreadPool& pool, Backend& backend) {
  Panels w = PlanPanels(desc, compute);
  const int64_t panels = (desc.rows + kPanelRows - 1) / kPanelRows;
  const int64_t row_bytes = RowBytes(desc.type, desc.stored_cols());
  Buffer memory = backend.Allocate(panels * w.panel_bytes);
  w.data = memory.as<uint8_t>();

  std::atomic<bool> read_ok{true}, finite{true};
  pool.ForRange(panels, 1, [&](int64_t begin, int64_t end) {
    const int64_t batch = std::max(kPanelRows, kReadBytes / row_bytes / kPanelRows * kPanelRows);
    const int64_t last = std::min(end * kPanelRows, desc.rows);
    std::vector<std::byte> rows(
        static_cast<size_t>(std::min(batch, RoundUp(last, 16)) * row_bytes));
    std::vector<float> values(static_cast<size_t>(desc.cols));
    for (int64_t first = begin * kPanelRows; first < last && read_ok; first += batch) {
      const int64_t n = std::min(batch, last - first);
      if (!reader(first, n, rows.data())) read_ok = false;
      for (int64_t i = 0; i < n && read_ok; ++i) {
        const int64_t row = first + i;
        uint8_t* panel = memory.as<uint8_t>() + row / kPanelRows * w.panel_bytes;
        const std::byte* stored = rows.data() + i * row_bytes;
        if (!PackRow(desc, w, stored, row % kPanelRows, panel, values)) finite = false;
      }
    }
  });
  LoadedWeight loaded;
  loaded.finite = finite;
  if (read_ok && finite) loaded.weight = std::make_unique<CpuWeight>(desc, w, std::move(memory));
  return loaded;
}

void DecodeStoredRows(DType type, const std::byte* packed, int64_t skip_cols, F32View out) {
  const int64_t block = Info(type).block_elems;
  const int64_t row_bytes = RowBytes(type, RoundUp(skip_cols + out.cols, block));
  for (int64_t r = 0; r < out.rows; ++r) {
    DecodeRow(type, packed + r * row_bytes, skip_cols, out.cols, out.row(r));
  }
}

}  // namespace trine::cpu
