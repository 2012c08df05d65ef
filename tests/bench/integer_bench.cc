// Speed of the CPU's matrix products over coded panels by the number of tokens, beside the peak of
// the byte dot products that they are made of, timed in the same run (in registers alone): AVX-512's
// vpdpbusd, or AVX2's vpmaddubsw and vpaddw.
//
//   integer_bench [ROUNDS] [TOKENS...]
//
// Weights of one shape of a 27B, far larger than the second-level cache. Every round times each
// candidate once, in turn; printed are medians, and the median of each round's ratio.
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "tests/bench/bench_tools.h"

namespace trine {
namespace {

constexpr int64_t kWeightBytes = int64_t{150} << 20;
constexpr Shape kShape{17408, 5120, 0};
constexpr int64_t kPeakSteps = 1 << 22;
constexpr int kChains = 12;  // independent sums: latency times throughput, and some

// Multiply-adds of a thread: the loop of a kernel, without loads.
#if defined(__AVX512VNNI__)
constexpr const char* kPeakName = "vpdpbusd, 512 bits";
constexpr int64_t kPeakWork = kPeakSteps * kChains * 64;
void PeakLoop(int64_t) {
  __m512i sums[kChains];
  for (auto& sum : sums) sum = _mm512_setzero_si512();
  __m512i codes = _mm512_set1_epi8(1), a = _mm512_set1_epi8(3);
  for (int64_t i = 0; i < kPeakSteps; ++i) {
    for (auto& sum : sums) sum = _mm512_dpbusd_epi32(sum, codes, a);
    asm volatile("" : "+v"(codes), "+v"(a));
  }
  for (auto& sum : sums) asm volatile("" : : "v"(sum));
}
#elif defined(__AVX2__)
constexpr const char* kPeakName = "vpmaddubsw and vpaddw, 256 bits";
constexpr int64_t kPeakWork = kPeakSteps * kChains * 32;
void PeakLoop(int64_t) {
  __m256i sums[kChains];
  for (auto& sum : sums) sum = _mm256_setzero_si256();
  __m256i codes = _mm256_set1_epi8(1), a = _mm256_set1_epi8(3);
  for (int64_t i = 0; i < kPeakSteps; ++i) {
    for (auto& sum : sums) sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, a));
    asm volatile("" : "+x"(codes), "+x"(a));
  }
  for (auto& sum : sums) asm volatile("" : : "x"(sum));
}
#else
constexpr const char* kPeakName = "no peak known here";
constexpr int64_t kPeakWork = 0;
void PeakLoop(int64_t) {}
#endif

double PeakSeconds(cpu::ThreadPool& pool, int threads) {
  return Seconds(threads, [&] {
    pool.ForRange(threads, 1, [](int64_t begin, int64_t) { PeakLoop(begin); });
  });
}

void Run(DType type, int64_t tokens, int threads, int rounds) {
  std::string error;
  const auto backend = MakeCpuBackend({threads}, &error);
  cpu::ThreadPool pool(threads);
  std::vector<std::unique_ptr<Weight>> weights;
  for (int64_t bytes = 0; bytes < kWeightBytes; bytes += weights.back()->bytes()) {
    weights.push_back(MakeWeight(*backend, type, kShape));
    if (tokens >= 32) break;
  }
  Product product(kShape, tokens);
  const auto multiplied = static_cast<double>(tokens * kShape.rows * kShape.cols) *
                          static_cast<double>(weights.size());
  std::vector<double> rates, ratios;
  for (int round = 0; round <= rounds; ++round) {
    const double peak = static_cast<double>(kPeakWork * threads) / PeakSeconds(pool, threads);
    const double rate = multiplied / Seconds(threads, [&] {
                          for (const auto& weight : weights) product.Run(*backend, *weight);
                        });
    if (round == 0) continue;  // warms up
    rates.push_back(rate);
    ratios.push_back(rate / peak);
  }
  std::printf("%-6s  tokens %4lld  threads %2d  %7.1f GMAC/s  ratio %.3f\n", Info(type).name,
              static_cast<long long>(tokens), threads, Median(rates) * 1e-9, Median(ratios));
  std::fflush(stdout);
}

}  // namespace
}  // namespace trine

int main(int argc, char** argv) {
  using namespace trine;
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
  std::vector<int64_t> tokens;
  for (int i = 2; i < argc; ++i) tokens.push_back(std::atoll(argv[i]));
  if (tokens.empty()) tokens = {1, 2, 3, 4, 5, 6, 8, 16, 32, 128, 512};
  std::string error;
  const auto backend = MakeCpuBackend({1}, &error);
  if (backend == nullptr || rounds < 1) {
    std::fprintf(stderr, "usage: integer_bench [ROUNDS] [TOKENS...] %s\n", error.c_str());
    return 2;
  }
  const int all = static_cast<int>(std::thread::hardware_concurrency());
  std::printf("%s of %d; peak: %s; medians of %d rounds\n", backend->Describe().c_str(), all,
              kPeakName, rounds);
  for (const int threads : all > 1 ? std::vector<int>{1, all} : std::vector<int>{1}) {
    for (const DType type : {DType::kPQ2_0, DType::kPTQ1_0, DType::kQ4_0, DType::kQ8_0}) {
      for (const int64_t n : tokens) Run(type, n, threads, rounds);
    }
  }
  return 0;
}
