// What the speed programs share: work of a 27B's shapes, a clock, and a plain read of the same bytes
// to hold it against.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/formats.h"
#include "kernels/half.h"

namespace trine {

// Those of a 27B: FFN up, FFN down and the attention's output; the latter two in granules.
struct Shape {
  int64_t rows, cols, granule;
};
constexpr Shape kShapes[] = {{17408, 5120, 0}, {5120, 17408, 1024}, {5120, 6144, 128}};

// One thread is timed by the processor's time, so that others on the machine count less.
template <typename Work>
double Seconds(int threads, const Work& work) {
  const auto now = [&] {
    timespec time{};
    clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begin = now();
  work();
  return now() - begin;
}

inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Values in [-1, 1), the same for an index everywhere.
inline float Noise(uint64_t i) {
  i = (i + 1) * 0x9E3779B97F4A7C15u;
  i = (i ^ (i >> 29)) * 0xBF58476D1CE4E5B9u;
  return static_cast<float>(static_cast<int32_t>(i >> 32)) * 0x1p-31f;
}

inline std::vector<float> NoiseRows(int64_t rows, int64_t cols, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(rows * cols));
  for (size_t i = 0; i < values.size(); ++i) values[i] = Noise(seed + i);
  return values;
}

// Rows of noise, whose scales are 2^-8 and minima 0 where the type has blocks.
inline std::vector<std::byte> NoiseBlocks(DType type, int64_t rows, int64_t cols) {
  std::vector<std::byte> bytes(static_cast<size_t>(rows * RowBytes(type, cols)));
  const auto width = static_cast<size_t>(Info(type).block_bytes);
  const auto fill = [&](auto format) {
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(FloatToBits(Noise(i)) & 255);
    for (size_t at = 0; at < bytes.size(); at += width) {
      typename decltype(format)::Block block;
      std::memcpy(&block, &bytes[at], width);
      block.d = FloatToF16(0x1p-8f);
      if constexpr (requires { block.m; }) block.m = 0;
      if constexpr (requires { block.dmin; }) block.dmin = 0;
      std::memcpy(&bytes[at], &block, width);
    }
  };
  if (formats::VisitFormat<formats::BlockFormats>(type, fill)) return bytes;
  if (formats::VisitFormat<formats::TwoBitFormats>(type, fill)) return bytes;
  for (size_t i = 0; i < bytes.size() / width; ++i) {
    const float value = Noise(i);
    const uint32_t bits = type == DType::kF16    ? FloatToF16(value)
                          : type == DType::kBF16 ? FloatToBits(value) >> 16
                                                 : FloatToBits(value);
    std::memcpy(&bytes[i * width], &bits, width);
  }
  return bytes;
}

// A weight whose rows repeat the first 16 of its shape, so that it is made quickly.
inline std::unique_ptr<Weight> MakeWeight(Backend& backend, DType type, const Shape& shape) {
  const std::vector<std::byte> rows = NoiseBlocks(type, 16, shape.cols);
  const WeightDesc desc{type, shape.rows, {{0, shape.cols}}, shape.granule};
  const int64_t row_bytes = RowBytes(type, shape.cols);
  return backend
      .LoadWeight(desc,
                  [&](int64_t first, int64_t n, std::byte* out) {
                    for (int64_t r = 0; r < n; ++r) {
                      std::memcpy(out + r * row_bytes,
                                  &rows[static_cast<size_t>((first + r) % 16 * row_bytes)],
                                  static_cast<size_t>(row_bytes));
                    }
                    return true;
                  })
      .weight;
}

// Tokens times weights: Linear, or LinearPartial where the shape has granules.
class Product {
 public:
  Product(const Shape& shape, int64_t tokens)
      : shape_(shape),
        tokens_(tokens),
        x_(NoiseRows(tokens, shape.cols, 1)),
        y_(static_cast<size_t>(tokens * shape.rows)),
        words_(static_cast<size_t>(tokens * words_per_row())) {}

  void Run(Backend& backend, const Weight& weight) {
    const F32View x{x_.data(), tokens_, shape_.cols, shape_.cols};
    if (shape_.granule == 0) {
      const LinearTask task[] = {
          {&weight, nullptr, {y_.data(), tokens_, shape_.rows, shape_.rows}}};
      backend.Linear(x, task);
    } else {
      backend.LinearPartial(x, weight, 0, {words_.data(), tokens_, words_per_row(), words_per_row()});
    }
  }

  double at(int64_t t, int64_t n) const {
    if (shape_.granule == 0) return y_[static_cast<size_t>(t * shape_.rows + n)];
    const int64_t word = words_[static_cast<size_t>(t * words_per_row() + n)];
    return static_cast<double>(word) / kPartialScale;
  }

  const float* x() const { return x_.data(); }

 private:
  int64_t words_per_row() const { return shape_.rows + kPartialExtraWords; }

  Shape shape_;
  int64_t tokens_;
  std::vector<float> x_, y_;
  std::vector<int64_t> words_;
};

// The least a kernel could do: every byte is read once and added, by vectors of 64 bytes.
typedef uint64_t Wide __attribute__((vector_size(64)));

inline uint64_t SumBytes(const uint8_t* data, int64_t bytes) {
  const auto* wide = reinterpret_cast<const Wide*>(data);
  Wide sums[8] = {};
  for (int64_t i = 0; i + 8 <= bytes / 64; i += 8) {
    for (int64_t j = 0; j < 8; ++j) sums[j] += wide[i + j];
  }
  Wide total = {};
  for (const Wide& sum : sums) total += sum;
  uint64_t result = 0;
  for (int i = 0; i < 8; ++i) result += total[i];
  return result;
}

inline volatile uint64_t g_sink;

inline void PlainRead(cpu::ThreadPool& pool, const std::vector<std::unique_ptr<Weight>>& weights) {
  for (const auto& weight : weights) {
    const auto* data = static_cast<const cpu::CpuWeight&>(*weight).panels().data;
    pool.ForRange(weight->bytes() / 4096, 1, [&](int64_t begin, int64_t end) {
      g_sink = SumBytes(data + begin * 4096, (end - begin) * 4096);
    });
  }
}

}  // namespace trine
