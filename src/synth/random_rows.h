// RandomRows: the weights of made-up tensors, row by row. A row depends on the seed, the tensor's
// number and the row's alone, so that threads may share rows out as they like. Packings of the same
// codes (PQ2_0, PTQ1_0, Q2_0) get the same codes and scales.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/synth/model_layout.h"

namespace trine {

class RandomRows {
 public:
  explicit RandomRows(uint64_t seed);

  // One stored row of tensor number `index` in the type of tensor.info, RowBytes of it, to `out`.
  // Ternary types: a third of the weights 0, in Q1_0 none; a scale per 128 columns, per 256 where
  // the format has no more. Others: about normal, or as tensor.fill says. Columns are a multiple of
  // 4. Thread-safe.
  void Fill(const SynthTensor& tensor, int64_t index, int64_t row, std::byte* out) const;

 private:
  uint64_t seed_;
  std::vector<uint16_t> trits_;  // 16 random bits to eight codes 0 to 2, as in TwoBitUnit
};

}  // namespace trine
