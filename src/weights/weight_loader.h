// WeightLoader: what a model's layers ask for while they are built. Each request claims this rank's
// part of one tensor and, unless the loader only plans, reads it into the backend. The first error
// sticks; later requests return nothing. The layers of one model are built twice: by a planning
// loader, which tells whether the file fits the model and how many bytes will be read, and by a
// loading one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "kernels/backend.h"
#include "src/core/result.h"
#include "src/weights/shard_plan.h"
#include "src/weights/weight_store.h"

namespace trine {

// One request: part of a tensor and the bytes of the file that hold it.
struct Claim {
  std::string tensor;
  Shard shard;
  int64_t bytes = 0;
  bool streamed = false;  // read row by row while running, not loaded
};

// Of all claims that are not streamed.
int64_t LoadedBytes(const std::vector<Claim>& claims);

class WeightLoader {
 public:
  // backend: nullptr to plan only. progress (may be empty) gets the bytes read after each tensor.
  WeightLoader(const WeightStore& store, Backend* backend,
               std::function<void(int64_t bytes)> progress);

  // A matrix of shape [rows, cols] in the file, this rank's part of it. granule as in WeightDesc.
  // nullptr when planning, after an error, and for an empty part.
  std::unique_ptr<Weight> Matrix(const std::string& name, int64_t rows, int64_t cols,
                                 const Shard& shard, int64_t granule);

  // Values [part) of a vector of n values, as f32: in host memory, or in the backend's. Empty when
  // planning and after an error.
  std::vector<float> HostVector(const std::string& name, int64_t n, Interval part);
  Buffer Vector(const std::string& name, int64_t n, Interval part);

  // A matrix whose rows are read while running.
  const TensorInfo* Streamed(const std::string& name, int64_t rows, int64_t cols);

  bool Has(std::string_view name) const { return store_.Find(name) != nullptr; }

  void Fail(Status status);
  const Status& status() const { return status_; }

  // The end of building: the first error, or one naming a tensor of the file that nobody claimed.
  Status Finish(std::string_view architecture);

  const std::vector<Claim>& claims() const { return claims_; }

 private:
  const TensorInfo* FindShaped(const std::string& name, std::vector<int64_t> shape);
  void Record(const TensorInfo& tensor, const Shard& shard, int64_t bytes, bool streamed);

  const WeightStore& store_;
  Backend* backend_;
  std::function<void(int64_t)> progress_;
  Status status_;
  std::vector<Claim> claims_;
  std::unordered_set<std::string> claimed_;
};

}  // namespace trine
