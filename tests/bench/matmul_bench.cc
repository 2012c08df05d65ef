// Speed of the CPU's matrix products, beside what they can be compared with in the same run: decode
// beside a plain read of the same bytes; prefill of float types beside OpenBLAS's sgemm where it was
// found when this was built. Prefill of the other types: integer_bench.
//
//   matmul_bench [decode|prefill] [ROUNDS] [TYPE...]
//
// Every round times each candidate once, in turn; printed are the medians, and the median of each
// round's ratio, which other work on the machine disturbs least. TRINE_CPU chooses the instruction
// set, OPENBLAS_CORETYPE that of OpenBLAS. Takes 4 GB of memory and some minutes.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "tests/bench/bench_tools.h"

#ifdef TRINE_OPENBLAS
#include <cblas.h>
#endif

namespace trine {
namespace {

constexpr int64_t kDecodeBytes = int64_t{2} << 30;  // per set: far more than a share of any cache
constexpr int64_t kPrefillTokens = 512;

void Print(const char* what, const Shape& shape, DType type, int threads, double work,
           const char* unit, const std::vector<double>& ours, const char* other,
           const std::vector<double>& others) {
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.size(); ++i) ratios.push_back(others[i] / ours[i]);
  std::printf("%-7s  %5lld x %5lld / %4lld  %-6s  threads %2d  %6.1f %s  %s %6.1f  ratio %.3f\n",
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

void Prefill(const std::vector<DType>& types, const Shape& shape, int threads, int rounds) {
  std::string error;
  const auto backend = MakeCpuBackend({threads}, &error);
  std::vector<std::unique_ptr<Weight>> weights;
  for (const DType type : types) weights.push_back(MakeWeight(*backend, type, shape));
  Product product(shape, kPrefillTokens);
  Opponent opponent(shape);
  std::vector<std::vector<double>> ours(types.size());
  std::vector<double> blas;
  for (int round = 0; round <= rounds; ++round) {
    const double other = opponent.SecondsOf(product, threads);
    if (round > 0) blas.push_back(other);  // round 0 warms up
    for (size_t i = 0; i < types.size(); ++i) {
      const double mine = Seconds(threads, [&] { product.Run(*backend, *weights[i]); });
      if (round > 0) ours[i].push_back(mine);
    }
  }
  const double work = 2e-9 * static_cast<double>(kPrefillTokens * shape.rows * shape.cols);
  for (size_t i = 0; i < types.size(); ++i) {
    Print("prefill", shape, types[i], threads, work, "GFLOP/s", ours[i], "sgemm", blas);
  }
  if (types.back() == DType::kF32) {  // its values are the opponent's
    std::printf("         largest difference from sgemm: %.1e\n",
                opponent.LargestDifference(product));
  }
}

}  // namespace
}  // namespace trine

int main(int argc, char** argv) {
  using namespace trine;
  const std::string what = argc > 1 ? argv[1] : "";
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 9;
  std::vector<DType> types, floats;
  for (const DTypeInfo& info : kDTypes) {
    bool wanted = argc <= 3;
    for (int i = 3; i < argc; ++i) wanted |= std::string(argv[i]) == info.name;
    if (wanted && info.block_bytes > 0) types.push_back(info.type);
    if (wanted && info.block_elems == 1) floats.push_back(info.type);
  }
  std::string error;
  const auto backend = MakeCpuBackend({1}, &error);
  if (backend == nullptr || rounds < 1 || (what != "decode" && what != "prefill")) {
    std::fprintf(stderr, "usage: matmul_bench decode|prefill [ROUNDS] [TYPE...] %s\n",
                 error.c_str());
    return 2;
  }
  const int all = static_cast<int>(std::thread::hardware_concurrency());
  std::printf("%s of %d; medians of %d rounds\n", backend->Describe().c_str(), all, rounds);
#ifdef TRINE_OPENBLAS
  std::printf("sgemm: %s, %s\n", openblas_get_corename(), openblas_get_config());
#else
  std::printf("sgemm: OpenBLAS was not found by the build\n");
#endif
  for (const int threads : all > 1 ? std::vector<int>{1, all} : std::vector<int>{1}) {
    for (const Shape& shape : kShapes) {
      for (const DType type : types) {
        if (what == "decode") Decode(type, shape, threads, rounds);
      }
      if (what == "prefill") Prefill(floats, shape, threads, rounds);
    }
  }
  return 0;
}
