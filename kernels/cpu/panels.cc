#include "kernels/cpu/panels.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "kernels/formats.h"

namespace trine::cpu {
namespace {

constexpr int64_t kPanelRows = 16;
constexpr int64_t kActivationGroup = 32;
constexpr int64_t kTwoBitActivationGroup = 128;
constexpr int64_t kBaseThreeColumns = 128, kBaseThreeBytes = 6 * 64 + 32;
constexpr int64_t kReadBytes = int64_t{512} << 10;  // of stored rows, per read: half an L2 cache

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

void PackUnit(const Panels& w, const formats::CodedUnit& unit, int first, int64_t r,
              uint8_t* panel) {
  PackCodes(w, unit, first, r, panel);
  auto* scales = reinterpret_cast<float*>(panel + w.scales_at);
  scales[r] = unit.scale;
  if (w.has_min) scales[kPanelRows + r] = unit.min;
}

// Sixteen columns of two bits, in order, to four fields: columns 4 f to 4 f + 3 are the f-th codes
// of the four bytes. The transpose of 4 x 4 codes.
uint32_t ToFields(uint32_t columns) {
  uint32_t swap = (columns ^ columns >> 6) & 0x00CC00CCu;
  columns ^= swap ^ swap << 6;
  swap = (columns ^ columns >> 12) & 0x0000F0F0u;
  return columns ^ swap ^ swap << 12;
}

// r = a + 3 b + 9 c + 27 d of a byte's four codes.
constexpr std::array<uint8_t, 256> kBaseThree = [] {
  std::array<uint8_t, 256> r{};
  for (uint32_t i = 0; i < r.size(); ++i) {
    r[i] = static_cast<uint8_t>((i & 3) + 3 * (i >> 2 & 3) + 9 * (i >> 4 & 3) + 27 * (i >> 6));
  }
  return r;
}();

void PackBaseThree(const formats::TwoBitUnit& unit, int64_t r, uint8_t* codes) {
  uint8_t padded[sizeof unit.eighths + 8] = {};
  std::memcpy(padded, unit.eighths, sizeof unit.eighths);
  for (int word = 0; word < 6; ++word, codes += 4 * kPanelRows) {
    uint64_t columns;  // the first 20 of them
    std::memcpy(&columns, padded + 5 * word, sizeof columns);
    const uint32_t fours = ToFields(static_cast<uint32_t>(columns));
    const auto fifths = static_cast<uint32_t>(columns >> 32);
    for (int j = 0; j < 4; ++j) {
      codes[4 * r + j] = static_cast<uint8_t>(kBaseThree[fours >> (8 * j) & 255] +
                                              81 * (fifths >> (2 * j) & 3));
    }
  }
  uint32_t tail = 0;
  for (int i = 0; i < 4; ++i) {
    tail |= static_cast<uint32_t>(unit.code(120 + i) | unit.code(124 + i) << 2) << (4 * i);
  }
  reinterpret_cast<uint16_t*>(codes)[r] = static_cast<uint16_t>(tail);
}

void PackUnit(const Panels& w, const formats::TwoBitUnit& unit, int first, int64_t r,
              uint8_t* panel) {
  if (w.kind == PanelKind::kBaseThree) {
    PackBaseThree(unit, r, panel);
  } else {
    for (int64_t word = 0; word < w.unit / 16; ++word) {
      uint32_t columns;
      std::memcpy(&columns, unit.eighths + first / 8 + 2 * word, 4);
      columns = ToFields(columns);
      std::memcpy(panel + (word * kPanelRows + r) * 4, &columns, 4);
    }
  }
  reinterpret_cast<uint16_t*>(panel + w.scales_at)[r] = unit.scale;
}

bool IsFinite(const formats::CodedUnit& unit) {
  return std::isfinite(unit.scale) && std::isfinite(unit.min);
}
bool IsFinite(const formats::TwoBitUnit& unit) {
  return (unit.scale & 0x7C00) != 0x7C00;
}

// A run of one stored row into lane r. A unit of the panel is a whole unit of the format or a part
// of one.
template <typename F, typename Unit>
bool PackCodedRun(const Panels& w, const std::byte* stored, const ColumnRun& run, int64_t r,
                  uint8_t* panel) {
  constexpr int64_t kBlock = Info(F::kType).block_elems;
  const auto* blocks = reinterpret_cast<const typename F::Block*>(stored);
  bool finite = true;
  Unit unit;
  for (int64_t k = run.skip; k < run.skip + run.cols; k += w.unit, panel += w.unit_bytes) {
    const int64_t in_block = k % kBlock;
    F::Decode(blocks[k / kBlock], static_cast<int>(in_block / F::kUnit), unit);
    PackUnit(w, unit, static_cast<int>(in_block % F::kUnit), r, panel);
    finite &= IsFinite(unit);
  }
  return finite;
}

// ---- any stored row to f32

void DecodeUnit(const formats::CodedUnit& unit, int64_t first, int64_t n, float* out) {
  for (int64_t j = 0; j < n; ++j) {
    out[j] = unit.scale * static_cast<float>(unit.codes[first + j]) + unit.min;
  }
}
void DecodeUnit(const formats::TwoBitUnit& unit, int64_t first, int64_t n, float* out) {
  const float scale = F16ToFloat(unit.scale);
  for (int64_t j = 0; j < n; ++j) {
    out[j] = scale * static_cast<float>(unit.code(static_cast<int>(first + j)) - 1);
  }
}

template <typename F, typename Unit>
void DecodeBlocks(const std::byte* stored, const ColumnRun& run, float* out) {
  constexpr int64_t kBlock = Info(F::kType).block_elems;
  const auto* blocks = reinterpret_cast<const typename F::Block*>(stored);
  Unit unit;
  for (int64_t k = run.skip, end = run.skip + run.cols; k < end;) {
    const int64_t in_block = k % kBlock, in_unit = in_block % F::kUnit;
    F::Decode(blocks[k / kBlock], static_cast<int>(in_block / F::kUnit), unit);
    const int64_t n = std::min<int64_t>(F::kUnit - in_unit, end - k);
    DecodeUnit(unit, in_unit, n, out);
    k += n;
    out += n;
  }
}

void DecodeRun(DType type, const std::byte* stored, const ColumnRun& run, float* out) {
  using formats::CodedUnit, formats::TwoBitUnit;
  const int64_t begin = run.skip * Info(type).block_bytes;
  if (formats::DecodePlain(type, stored + begin, run.cols, out)) return;
  formats::VisitFormat<formats::BlockFormats>(
      type, [&](auto f) { DecodeBlocks<decltype(f), CodedUnit>(stored, run, out); });
  formats::VisitFormat<formats::TwoBitFormats>(
      type, [&](auto f) { DecodeBlocks<decltype(f), TwoBitUnit>(stored, run, out); });
}

// ---- one run of one stored row into lane r of a panel, from the run's first column on

bool PackRun(DType type, const Panels& w, const std::byte* stored, const ColumnRun& run, int64_t r,
             uint8_t* panel, std::vector<float>& values) {
  using formats::CodedUnit, formats::TwoBitUnit;
  const auto* halves = reinterpret_cast<const uint16_t*>(stored) + run.skip;
  bool finite = true;
  switch (w.kind) {
    case PanelKind::kF16:
      return PackHalves(halves, 0x7C00, run.cols, r, panel);
    case PanelKind::kBF16:
      return PackHalves(halves, 0x7F80, run.cols, r, panel);
    case PanelKind::kF32:
      DecodeRun(type, stored, run, values.data());
      for (int64_t k = 0; k < run.cols; ++k)
        finite &= std::isfinite(values[static_cast<size_t>(k)]);
      PackFloats<float>(values.data(), run.cols, r, panel);
      return finite;
    case PanelKind::kNibble:
    case PanelKind::kByte:
      formats::VisitFormat<formats::BlockFormats>(type, [&](auto f) {
        finite = PackCodedRun<decltype(f), CodedUnit>(w, stored, run, r, panel);
      });
      return finite;
    case PanelKind::kTwoBit:
    case PanelKind::kBaseThree:
      formats::VisitFormat<formats::TwoBitFormats>(type, [&](auto f) {
        finite = PackCodedRun<decltype(f), TwoBitUnit>(w, stored, run, r, panel);
      });
      return finite;
  }
  return false;
}

bool PackRow(const WeightDesc& desc, const Panels& w, const std::byte* stored, int64_t r,
             uint8_t* panel, std::vector<float>& values) {
  bool finite = true;
  for (const ColumnRun& run : desc.runs) {
    finite &= PackRun(desc.type, w, stored, run, r, panel, values);
    stored += RowBytes(desc.type, run.stored_cols(desc.type));
    panel += run.cols / w.unit * w.unit_bytes;
  }
  return finite;
}

// ---- which layout

// Columns that share an activation scale: `wide`, fewer where a granule is no multiple of it.
int64_t ActivationGroup(const WeightDesc& desc, int64_t wide) {
  return std::gcd(wide, desc.granule == 0 ? desc.cols() : desc.granule);
}

template <typename F>
void PlanCoded(const WeightDesc& desc, Panels& w) {
  const int64_t group = ActivationGroup(desc, kActivationGroup);
  const int64_t unit = std::gcd<int64_t>(F::kUnit, group);
  if (unit % 4 != 0) return;  // granules too narrow for dot products of four: stays float
  const bool nibbles = F::kCodes.bits == 4 && unit % 8 == 0;
  w.kind = nibbles ? PanelKind::kNibble : PanelKind::kByte;
  w.group = group;
  w.unit = unit;
  w.code_bias = -F::kCodes.lowest;
  w.has_min = F::kHasMin;
  w.scales_at = w.unit * (nibbles ? 8 : 16);
  w.unit_bytes = w.scales_at + (w.has_min ? 128 : 64);
}

bool IsBaseThree(DType type) {
  return type == DType::kTQ1_0 || type == DType::kPTQ1_0;
}

template <typename F>
void PlanTwoBit(const WeightDesc& desc, bool base_three, Panels& w) {
  const int64_t group = ActivationGroup(desc, kTwoBitActivationGroup);
  const int64_t unit = std::gcd<int64_t>(F::kUnit, group);
  if (unit % 16 != 0) return;  // granules narrower than a word: stays float
  w.kind = base_three && IsBaseThree(desc.type) && unit == kBaseThreeColumns
               ? PanelKind::kBaseThree
               : PanelKind::kTwoBit;
  w.group = group;
  w.unit = unit;
  w.code_bias = 1;
  w.scales_at = w.kind == PanelKind::kBaseThree ? kBaseThreeBytes : w.unit * 4;
  w.unit_bytes = w.scales_at + 32;
}

}  // namespace

Panels PlanPanels(const WeightDesc& desc, Compute compute, bool base_three) {
  Panels w;
  w.rows = desc.rows;
  w.cols = desc.cols();
  w.granule = desc.granule;
  w.kind = PanelKind::kF32;
  w.unit_bytes = 4 * kPanelRows;
  if (compute == Compute::kInteger) {
    if (desc.type == DType::kF16) w.kind = PanelKind::kF16;
    if (desc.type == DType::kBF16) w.kind = PanelKind::kBF16;
    if (w.kind != PanelKind::kF32) w.unit_bytes = 2 * kPanelRows;
    formats::VisitFormat<formats::BlockFormats>(desc.type,
                                                [&](auto f) { PlanCoded<decltype(f)>(desc, w); });
    formats::VisitFormat<formats::TwoBitFormats>(
        desc.type, [&](auto f) { PlanTwoBit<decltype(f)>(desc, base_three, w); });
  }
  if (w.group != 0 && w.cols % w.group != 0) {  // kernels would read beyond the row
    std::fprintf(stderr, "trine: %lld columns are no multiple of activation groups of %lld\n",
                 static_cast<long long>(w.cols), static_cast<long long>(w.group));
    std::abort();
  }
  w.panel_bytes = w.cols / w.unit * w.unit_bytes;
  return w;
}

WeightKernel CpuWeight::kernel() const {
  const DType type = desc().type;
  const std::string groups = ", groups of " + std::to_string(panels_.group);
  switch (panels_.kind) {
    case PanelKind::kTwoBit:
      return {"2-bit panels", "int8 activations" + groups,
              IsBaseThree(type) ? "base 3 is kept as 2 bits" : ""};
    case PanelKind::kBaseThree:
      return {"base-3 panels", "int8 activations" + groups, ""};
    case PanelKind::kNibble:
      return {"4-bit panels", "int16 activations" + groups, ""};
    case PanelKind::kByte: {
      const bool wider = type == DType::kQ4_0 || type == DType::kQ4_1 || type == DType::kQ4_K;
      return {"8-bit panels", "int16 activations" + groups,
              wider ? "granules are no multiple of 8 columns" : ""};
    }
    case PanelKind::kF16:
      return {"f16 panels", "f32", ""};
    case PanelKind::kBF16:
      return {"bf16 panels", "f32", ""};
    case PanelKind::kF32:
      break;
  }
  if (type == DType::kF32) return {"f32 panels", "f32", ""};
  return {"f32 panels", "f32",
          compute_ == Compute::kF32 ? "--compute f32" : "granules are too narrow for integers"};
}

LoadedWeight RepackWeight(const WeightDesc& desc, Compute compute, bool base_three,
                          const RowReader& reader, ThreadPool& pool, Backend& backend) {
  Panels w = PlanPanels(desc, compute, base_three);
  const int64_t panels = (desc.rows + kPanelRows - 1) / kPanelRows;
  const int64_t row_bytes = RowBytes(desc.type, desc.stored_cols());
  Buffer memory = backend.Allocate(panels * w.panel_bytes);
  w.data = memory.as<uint8_t>();
  if (backend.dry()) return {std::make_unique<CpuWeight>(desc, w, compute, std::move(memory))};

  std::atomic<bool> read_ok{true}, finite{true};
  pool.ForRange(panels, 1, [&](int64_t begin, int64_t end) {
    const int64_t fit = kReadBytes / std::max<int64_t>(row_bytes, 1);  // a part may have no columns
    const int64_t batch = std::max(kPanelRows, fit / kPanelRows * kPanelRows);
    const int64_t last = std::min(end * kPanelRows, desc.rows);
    const int64_t bytes = std::min(batch, RoundUp(last, 16)) * row_bytes;
    const auto rows = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes));
    std::vector<float> values(static_cast<size_t>(w.cols));
    for (int64_t first = begin * kPanelRows; first < last && read_ok; first += batch) {
      const int64_t n = std::min(batch, last - first);
      if (!reader(first, n, rows.get())) read_ok = false;
      for (int64_t i = 0; i < n && read_ok; ++i) {
        const int64_t row = first + i;
        uint8_t* panel = memory.as<uint8_t>() + row / kPanelRows * w.panel_bytes;
        const std::byte* stored = rows.get() + i * row_bytes;
        if (!PackRow(desc, w, stored, row % kPanelRows, panel, values)) finite = false;
      }
    }
  });
  LoadedWeight loaded;
  loaded.finite = finite;
  if (read_ok && finite) {
    loaded.weight = std::make_unique<CpuWeight>(desc, w, compute, std::move(memory));
  }
  return loaded;
}

void DecodeStoredRows(DType type, const std::byte* packed, F32View out) {
  const ColumnRun run{0, out.cols};
  const int64_t row_bytes = RowBytes(type, run.stored_cols(type));
  for (int64_t r = 0; r < out.rows; ++r) DecodeRun(type, packed + r * row_bytes, run, out.row(r));
}

}  // namespace trine::cpu
