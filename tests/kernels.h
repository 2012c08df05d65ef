// Backends and matrices for the tests of kernels.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>

#include "kernels/backend.h"
#include "kernels/formats.h"
#include "kernels/formats/ternary_encode.h"
#include "kernels/half.h"
#include "tests/fixtures.h"

namespace trine {

inline constexpr DType kAllTypes[] = {DType::kF32,  DType::kF16,   DType::kBF16,  DType::kQ8_0,
                                      DType::kQ4_0, DType::kQ4_1,  DType::kQ4_K,  DType::kQ5_K,
                                      DType::kQ6_K, DType::kTQ1_0, DType::kTQ2_0, DType::kQ1_0,
                                      DType::kQ2_0, DType::kPQ2_0, DType::kPTQ1_0};

inline std::unique_ptr<Backend> MakeBackend(const char* unit, int threads = 1,
                                            Compute compute = Compute::kInteger) {
  setenv("TRINE_CPU", unit, /*overwrite=*/1);
  std::string error;
  auto backend = MakeCpuBackend({threads, compute}, &error);
  unsetenv("TRINE_CPU");
  return backend;  // nullptr: not on this processor
}

// The instruction sets of this machine.
inline std::vector<const char*> Units() {
  std::vector<const char*> units;
  for (const char* unit : {"generic", "avx2", "avx512"}) {
    if (MakeBackend(unit) != nullptr) units.push_back(unit);
  }
  return units;
}

// A matrix that owns its values.
template <typename T>
struct Matrix {
  Matrix(int64_t r, int64_t c) : rows(r), cols(c), values(static_cast<size_t>(r * c)) {}
  MatrixView<T> view() { return {values.data(), rows, cols, cols}; }
  T& at(int64_t r, int64_t c) { return values[static_cast<size_t>(r * cols + c)]; }
  int64_t rows, cols;
  std::vector<T> values;
};

inline Matrix<float> RandomMatrix(int64_t rows, int64_t cols, uint32_t seed, float outlier = 1) {
  Matrix<float> m(rows, cols);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (float& value : m.values) value = normal(random);
  if (!m.values.empty()) m.values[m.values.size() / 3] *= outlier;
  return m;
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Random codes that every two-bit format holds (no zeros in Q1_0), with scales between 2^-6 and
// 2^-5, every fifth negative.
inline std::vector<formats::TwoBitUnit> RandomUnits(DType type, int64_t count, uint32_t seed) {
  std::vector<formats::TwoBitUnit> units(static_cast<size_t>(count));
  std::mt19937 random(seed);
  for (formats::TwoBitUnit& unit : units) {
    unit.scale = static_cast<uint16_t>(0x2400 + random() % 0x400 + (random() % 5 == 0) * 0x8000);
    for (int c = 0; c < 128; ++c) {
      const auto code = static_cast<int>(random() % 3);
      unit.Put(c, type == DType::kQ1_0 ? code / 2 * 2 : code);
    }
  }
  return units;
}

// The blocks of those units; those of 256 columns have the first unit's scale.
inline std::vector<std::byte> EncodeUnits(DType type, std::vector<formats::TwoBitUnit> units) {
  std::vector<std::byte> bytes;
  formats::VisitFormat<formats::TwoBitFormats>(type, [&](auto format) {
    using F = decltype(format);
    const size_t in_block = static_cast<size_t>(Info(type).block_elems / F::kUnit);
    for (size_t i = 0; i + in_block <= units.size(); i += in_block) {
      units[i + in_block - 1].scale = units[i].scale;
      typename F::Block block;
      EXPECT_TRUE(formats::Encode(&units[i], block)) << Info(type).name;
      const auto* begin = reinterpret_cast<const std::byte*>(&block);
      bytes.insert(bytes.end(), begin, begin + sizeof block);
    }
  });
  return bytes;
}

// Stored bytes of a random matrix of any type: normal values in plain types, the fixture's blocks
// dealt at random in the others.
struct Stored {
  Stored(DType t, int64_t r, int64_t c, uint32_t seed) : type(t), rows(r), cols(c) {
    const std::string name = Info(type).name;
    std::mt19937 random(seed);
    bytes.resize(static_cast<size_t>(rows * RowBytes(type, cols)));
    if (Info(type).block_elems == 1) {
      const Matrix<float> values = RandomMatrix(rows, cols, seed);
      for (size_t i = 0; i < values.values.size(); ++i) {
        const uint32_t bits = type == DType::kF16    ? FloatToF16(values.values[i])
                              : type == DType::kBF16 ? FloatToBits(values.values[i]) >> 16
                                                     : FloatToBits(values.values[i]);
        const auto width = static_cast<size_t>(Info(type).block_bytes);
        std::memcpy(&bytes[i * width], &bits, width);
      }
      return;
    }
    const auto pool = IsTernary(type) ? EncodeUnits(type, RandomUnits(type, 24, seed))
                                      : ReadArray<std::byte>(DataPath("formats/" + name + ".bin"));
    const auto block = static_cast<size_t>(Info(type).block_bytes);
    for (size_t at = 0; at < bytes.size(); at += block) {
      std::memcpy(&bytes[at], &pool[random() % (pool.size() / block) * block], block);
    }
  }

  // Rows of this rank's columns, as a loader would read them.
  RowReader Reader(const WeightDesc& desc, int64_t first_col, int64_t first_row = 0) const {
    const int64_t row_bytes = RowBytes(type, cols);
    const int64_t begin = RowBytes(type, first_col - desc.runs[0].skip);
    const int64_t part = RowBytes(type, desc.stored_cols());
    return [=, this](int64_t first, int64_t n, std::byte* out) {
      for (int64_t r = 0; r < n; ++r) {
        std::memcpy(out + r * part,
                    &bytes[static_cast<size_t>((first_row + first + r) * row_bytes + begin)],
                    static_cast<size_t>(part));
      }
      return true;
    };
  }

  std::unique_ptr<Weight> Load(Backend& backend, int64_t granule, int64_t begin = 0,
                               int64_t end = -1) const {
    const ColumnRun run{begin % Info(type).block_elems, (end < 0 ? cols : end) - begin};
    const WeightDesc desc{type, rows, {run}, granule};
    return backend.LoadWeight(desc, Reader(desc, begin)).weight;
  }

  Matrix<float> Decoded(Backend& backend) const {
    Matrix<float> values(rows, cols);
    backend.DecodeRows(type, bytes.data(), values.view());
    return values;
  }

  DType type;
  int64_t rows, cols;
  std::vector<std::byte> bytes;
};

}  // namespace trine
