// WeightLoader: what a model's layers ask for while they are built. Each request claims this rank's
// part of one tensor and reads it into the backend. The first error sticks; later requests return
// nothing. Missing tensors are collected, so that one error names them all. On a dry backend (see
// Backend::dry) nothing is read: that build is the plan, which tells whether the file fits the
// model and what it takes; the same code then loads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "src/core/result.h"
#include "src/weights/rotation.h"
#include "src/weights/shard_plan.h"
#include "src/weights/weight_store.h"

namespace trine {

// One request: part of a tensor, the bytes of the file that hold it, and what becomes of them.
struct Claim {
  const TensorInfo* tensor;
  Shard shard;
  int64_t bytes = 0;
  int64_t resident = 0;   // bytes in the backend's memory
  bool streamed = false;  // read row by row while running, not loaded
  WeightKernel kernel;    // of a matrix
};

// Of all claims that are not streamed.
int64_t LoadedBytes(const std::vector<Claim>& claims);

class WeightLoader {
 public:
  // progress (may be empty) gets the bytes read after each tensor. All references must outlive
  // this.
  WeightLoader(const WeightStore& store, const Rotation& rotation, Backend& backend,
               std::function<void(int64_t bytes)> progress);

  // A matrix of shape [rows, cols] in the file, this rank's part of it. granule as in WeightDesc.
  // nullptr after an error, and for a part without rows.
  std::unique_ptr<Weight> Matrix(const std::string& name, int64_t rows, int64_t cols,
                                 const Shard& shard, int64_t granule);

  // Rows of a table of plain values [rows, cols], one after another as f32; of a vector if cols is
  // 1. In the backend's memory, or in the host's (empty on a dry backend and after an error).
  Buffer Table(const std::string& name, int64_t rows, int64_t cols, const Shard& shard);
  Buffer Vector(const std::string& name, int64_t n) {
    return Table(name, n, 1, Shard::Rows({0, n}));
  }
  std::vector<float> HostTable(const std::string& name, int64_t rows, int64_t cols,
                               const Shard& shard);

  // A matrix whose rows are read while running.
  const TensorInfo* Streamed(const std::string& name, int64_t rows, int64_t cols);

  // Whether a weight is stored rotated. The layer that asks has to apply it: Finish refuses a
  // listed weight that nobody asked for.
  bool Rotates(const std::string& weight);
  const Rotation& rotation() const { return rotation_; }
  // The signs of input columns [part) of a rotated weight, shared by all that want the same.
  std::shared_ptr<const Buffer> Signs(int64_t width, Interval part);

  // Tensors that begin so are no part of the model.
  void Ignore(const std::string& prefix) { ignored_.push_back(prefix); }

  const WeightStore& store() const { return store_; }
  Backend& backend() const { return backend_; }
  bool Has(std::string_view name) const { return store_.Find(name) != nullptr; }

  void Fail(Status status);
  const Status& status() const { return status_; }

  // The end of building: the first error, or one naming what is missing, a tensor of the file that
  // nobody claimed or a rotation that nobody applies. `unexpected`, unless it is nullptr, gets the
  // names of unclaimed tensors, which are no error then.
  Status Finish(std::string_view architecture, std::vector<std::string>* unexpected = nullptr);

  const std::vector<Claim>& claims() const { return claims_; }

 private:
  const TensorInfo* FindShaped(const std::string& name, std::vector<int64_t> shape);
  bool IsIgnored(std::string_view name) const;

  const WeightStore& store_;
  const Rotation& rotation_;
  Backend& backend_;
  std::function<void(int64_t)> progress_;
  Status status_;
  std::vector<Claim> claims_;
  std::unordered_set<std::string> claimed_, rotated_;
  std::set<std::string> missing_;
  std::vector<std::string> ignored_;
  std::map<std::pair<int64_t, int64_t>, std::shared_ptr<const Buffer>> signs_;  // (width, begin)
};

}  // namespace trine
