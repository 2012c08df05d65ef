// RowConverter: the bytes of one tensor in another container, some rows at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "src/convert/conversion.h"
#include "src/core/output_file.h"
#include "src/core/result.h"

namespace trine {

class RowConverter {
 public:
  // done (may be empty) is told how many bytes of the source were dealt with. Uses about 50 MB,
  // or ten rows where these are longer.
  RowConverter(const WeightStore& store, int threads, std::function<void(int64_t bytes)> done);

  // All rows, from the disk to the sink. Errors name the tensor and row whose values do not fit the
  // type, and what would do.
  Status Convert(const ConvertedTensor& tensor, const ByteSink& sink);

 private:
  Status ConvertPart(const ConvertedTensor& tensor, int64_t first, int64_t n, Backend& backend,
                     std::byte* out) const;

  const WeightStore& store_;
  std::vector<std::unique_ptr<Backend>> backends_;  // one a thread
  std::function<void(int64_t)> done_;
};

// A plain vector's values in the model's sense, [elements].
Result<std::vector<float>> ReadVector(const WeightStore& store, const TensorInfo& tensor);

// Whether a type holds what is to be stored of a small tensor without rounding.
Result<bool> HoldsExactly(const WeightStore& store, const ConvertedTensor& tensor, DType type);

}  // namespace trine
