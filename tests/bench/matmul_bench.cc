// Speed of the CPU's matrix products over float panels, beside what they can be compared with in
// the same run: decode beside a plain read of the same bytes, prefill beside OpenBLAS's sgemm where
// it was found when this was built.
//
//   matmul_bench [decode|prefill] [ROUNDS]
//
// Every round times each candidate once, in turn; printed are the medians, and the median of each
// round's ratio, which other work on the machine disturbs least. TRINE_CPU chooses the instruction
// set, OPENBLAS_CORETYPE that of OpenBLAS. Takes 4 GB of memory and some minutes.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/half.h"

#ifdef TRINE_OPENBLAS
#include <cblas.h>
#endif

namespace trine {
namespace {

constexpr int64_t kDecodeBytes = int64_t{2} << 30;  // per set: far more than a share of any cache
constexpr int64_t kPrefillTokens = 512;

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

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Values in [-1, 1), the same for an index everywhere.
float Noise(uint64_t i) {
  i = (i + 1) * 0x9E3779B97F4A7C15u;
  i = (i ^ (i >> 29)) * 0xBF58476D1CE4E5B9u;
  return static_cast<float>(static_cast<int32_t>(i >> 32)) * 0x1p-31f;
}

std::vector<float> NoiseRows(int64_t rows, int64_t cols, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(rows * cols));
  for (size_t i = 0; i < values.size(); ++i) values[i] = Noise(seed + i);
  return values;
}

// A weight whose rows repeat the first 16 of its shape, so that it is made quickly.
std::unique_ptr<Weight> MakeWeight(Backend& backend, DType type, const Shape& shape) {
  std::vector<std::byte> rows(static_cast<size_t>(16 * RowBytes(type, shape.cols)));
  const auto width = static_cast<size_t>(Info(type).block_bytes);
  for (size_t i = 0; i < rows.size() / width; ++i) {
    const float value = Noise(i);
    const uint32_t bits = type == DType::kF16    ? FloatToF16(value)
                          : type == DType::kBF16 ? FloatToBits(value) >> 16
                                                 : FloatToBits(value);
    std::memcpy(&rows[i * width], &bits, width);
  }
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
      backend.LinearPartial(x, weight, {words_.data(), tokens_, words_per_row(), words_per_row()});
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

uint64_t SumBytes(const uint8_t* data, int64_t bytes) {
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

volatile uint64_t g_sink;

void PlainRead(cpu::ThreadPool& pool, const std::vector<std::unique_ptr<Weight>>& weights) {
  for (const auto& weight : weights) {
    const auto* data = static_cast<const cpu::CpuWeight&>(*weight).panels().data;
    pool.ForRange(weight->bytes() / 4096, 1, [&](int64_t begin, int64_t end) {
      g_sink = SumBytes(data + begin * 4096, (end - begin) * 4096);
    });
  }
}

void Print(const char* what, const Shape& shape, DType type, int threads, double work,
           const char* unit, const std::vector<double>& ours, const char* other,
           const std::vector<double>& others) {
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.size(); ++i) ratios.push_back(others[i] / ours[i]);
  std::printf("%-7s  %5lld x %5lld / %4lld  %-4s  threads %2d  %6.1f %s  %s %6.1f  ratio %.3f\n",
              what, static_cast<long long>(shape.rows), static_cast<long long>(shape.cols),
              static_cast<long long>(shape.granule), Info(type).name, threads, work / Median(ours),
              unit, other, work / Median(others), Median(ratios));
  std::fflush(stdout);
}

void Decode(DType type, const Shape& shape, int threads, int rounds) {
  std::string error;
  const auto backend = MakeCpuBackend({threads}, &error);
  cpu::ThreadPool pool(threads);
  std::vector<std::unique_ptr<Weight>> weights;
  int64_t bytes = 0;
  for (; bytes < kDecodeBytes; bytes += weights.back()->bytes()) {
    weights.push_back(MakeWeight(*backend, type, shape));
  }
  Product product(shape, 1);
  const auto decode = [&] {
    for (const auto& weight : weights) product.Run(*backend, *weight);
  };
  std::vector<double> ours, plain;
  for (int round = 0; round <= rounds; ++round) {
    const double read = Seconds(threads, [&] { PlainRead(pool, weights); });
    const double mine = Seconds(threads, decode);
    if (round == 0) continue;  // warms up
    ours.push_back(mine);
    plain.push_back(read);
  }
  Print("decode", shape, type, threads, static_cast<double>(bytes) * 1e-9, "GB/s", ours,
        "plain read", plain);
}

// y = x W^T by sgemm, row-major, W [N, K] of the values that the weight is made of.
class Opponent {
 public:
  explicit Opponent([[maybe_unused]] const Shape& shape) {
#ifdef TRINE_OPENBLAS
    shape_ = shape;
    w_ = NoiseRows(16, shape.cols, 0);
    w_.reserve(static_cast<size_t>(shape.rows * shape.cols));
    for (size_t i = 0; w_.size() < w_.capacity(); ++i) w_.push_back(w_[i]);
    y_.resize(static_cast<size_t>(kPrefillTokens * shape.rows));
#endif
  }

  double SecondsOf([[maybe_unused]] const Product& product, [[maybe_unused]] int threads) {
#ifdef TRINE_OPENBLAS
    openblas_set_num_threads(threads);
    const auto n = static_cast<blasint>(shape_.rows), k = static_cast<blasint>(shape_.cols);
    return Seconds(threads, [&] {
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, kPrefillTokens, n, k, 1, product.x(), k,
                  w_.data(), k, 0, y_.data(), n);
    });
#else
    return NAN;
#endif
  }

  double LargestDifference(const Product& product) const {
    double worst = 0;
    for (size_t i = 0; i < y_.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      worst = std::max(worst, std::fabs(product.at(at / shape_.rows, at % shape_.rows) - y_[i]));
    }
    return worst;
  }

 private:
  Shape shape_{};
  std::vector<float> w_, y_;
};

void Prefill(const Shape& shape, int threads, int rounds) {
  std::string error;
  const auto backend = MakeCpuBackend({threads}, &error);
  const DType types[] = {DType::kF16, DType::kBF16, DType::kF32};
  std::vector<std::unique_ptr<Weight>> weights;
  for (const DType type : types) weights.push_back(MakeWeight(*backend, type, shape));
  Product product(shape, kPrefillTokens);
  Opponent opponent(shape);
  std::vector<double> ours[3], blas;
  for (int round = 0; round <= rounds; ++round) {
    const double other = opponent.SecondsOf(product, threads);
    if (round > 0) blas.push_back(other);  // round 0 warms up
    for (size_t i = 0; i < 3; ++i) {
      const double mine = Seconds(threads, [&] { product.Run(*backend, *weights[i]); });
      if (round > 0) ours[i].push_back(mine);
    }
  }
  const double work = 2e-9 * static_cast<double>(kPrefillTokens * shape.rows * shape.cols);
  for (size_t i = 0; i < 3; ++i) {
    Print("prefill", shape, types[i], threads, work, "GFLOP/s", ours[i], "sgemm", blas);
  }
  // The last product is that of f32, whose values are the opponent's.
  std::printf("         largest difference from sgemm: %.1e\n",
              opponent.LargestDifference(product));
}

}  // namespace
}  // namespace trine

int main(int argc, char** argv) {
  using namespace trine;
  const std::string what = argc > 1 ? argv[1] : "";
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 9;
  const int all = static_cast<int>(std::thread::hardware_concurrency());
  std::string error;
  const auto backend = MakeCpuBackend({1}, &error);
  if (backend == nullptr || rounds < 1 || (what != "" && what != "decode" && what != "prefill")) {
    std::fprintf(stderr, "usage: matmul_bench [decode|prefill] [ROUNDS] %s\n", error.c_str());
    return 2;
  }
  std::printf("%s of %d; medians of %d rounds\n", backend->Describe().c_str(), all, rounds);
#ifdef TRINE_OPENBLAS
  std::printf("sgemm: %s, %s\n", openblas_get_corename(), openblas_get_config());
#else
  std::printf("sgemm: OpenBLAS was not found by the build\n");
#endif
  for (const int threads : all > 1 ? std::vector<int>{1, all} : std::vector<int>{1}) {
    for (const Shape& shape : kShapes) {
      if (what != "prefill") {
        for (const DType type : {DType::kF16, DType::kBF16, DType::kF32})
          Decode(type, shape, threads, rounds);
      }
      if (what != "decode") Prefill(shape, threads, rounds);
    }
  }
  return 0;
}
