// Sums and splits of parts. Plain loops, shaped so that the compiler vectorises them.
#include "comm/parts.h"

#include <numeric>

namespace trine {
namespace {

// Elements added at a time: the sums stay in L1, and a constant count is vectorised even at -O2.
constexpr int64_t kBlock = 64;

template <typename T>
const T* At(const std::byte* part, int64_t begin) {
  return reinterpret_cast<const T*>(part) + begin;
}

// The local array is what lets `sum` be one of the parts: every part is read before sum is written.
template <typename T>
void SumBlock(std::span<const std::byte* const> parts, int64_t begin, T* sum) {
  T block[kBlock];
  const T* first = At<T>(parts[0], begin);
  for (int64_t i = 0; i < kBlock; ++i) block[i] = first[i];
  for (const std::byte* part : parts.subspan(1)) {
    const T* next = At<T>(part, begin);
    for (int64_t i = 0; i < kBlock; ++i) block[i] += next[i];
  }
  for (int64_t i = 0; i < kBlock; ++i) sum[begin + i] = block[i];
}

template <typename T>
void Sum(std::span<const std::byte* const> parts, int64_t count, T* sum) {
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) SumBlock(parts, i, sum);
  for (; i < count; ++i) {
    T value = *At<T>(parts[0], i);
    for (const std::byte* part : parts.subspan(1)) value += *At<T>(part, i);
    sum[i] = value;
  }
}

}  // namespace

void SumInRankOrder(std::span<const std::byte* const> parts, int64_t count, Element type,
                    std::byte* sum) {
  if (type == Element::kFloat32) {
    Sum(parts, count, reinterpret_cast<float*>(sum));
  } else {
    Sum(parts, count, reinterpret_cast<uint64_t*>(sum));  // unsigned: wrapping is defined
  }
}

int64_t OffsetOf(std::span<const int64_t> counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
}

void SplitEvenly(int64_t count, std::span<int64_t> counts) {
  const auto ranks = static_cast<int64_t>(counts.size());
  for (int64_t rank = 0; rank < ranks; ++rank) {
    counts[static_cast<size_t>(rank)] = count / ranks + (rank < count % ranks ? 1 : 0);
  }
}

}  // namespace trine
