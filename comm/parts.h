// Private to comm/: what the backends share about parts, the pieces of a tensor that belong to one
// rank each. It knows memory and element types, no transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/communicator.h"

namespace trine {

// sum [count] = parts[0] + parts[1] + ..., added in this order. kInt64 wraps. `sum` may be one of
// the parts; otherwise they do not overlap. `type` is not kByte.
void SumInRankOrder(std::span<const std::byte* const> parts, int64_t count, Element type,
                    std::byte* sum);

// Where the part of `rank` starts, in elements. OffsetOf(counts, counts.size()) is the whole.
int64_t OffsetOf(std::span<const int64_t> counts, int rank);

// Splits count into counts.size() parts that differ by one at most.
void SplitEvenly(int64_t count, std::span<int64_t> counts);

}  // namespace trine
