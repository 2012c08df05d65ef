// Rotation: which weights of a model are stored in a rotated basis, and by what. Read from
// prism.hadamard.*; the arithmetic is Backend::Rotate. A listed weight W multiplies H (x . signs)
// instead of x, block by block of its input; the rows of an inversely listed embedding come out of
// signs . (H row). Source: PrismML's GGUF metadata, versions 1 and 2.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/result.h"
#include "src/weights/weight_store.h"

namespace trine {

class Rotation {
 public:
  // Rotates nothing if the file has no such key. Refuses by name whatever it does not know, and
  // lists that do not fit the tensors.
  static Result<Rotation> Read(const WeightStore& store);

  int64_t block() const { return block_; }  // columns; 0: nothing is rotated
  bool Rotates(std::string_view weight) const { return weights_.count(weight) != 0; }
  bool RotatesEmbedding() const { return embedding_; }
  // Of all input columns of a rotated weight: 1 or -1.
  std::vector<float> Signs(int64_t width) const;
  // The columns of a rotated ssm_out are in grouped order, whatever the file's order of value
  // heads.
  bool delta_grouped() const { return delta_grouped_; }

  const std::set<std::string, std::less<>>& weights() const { return weights_; }

 private:
  int64_t block_ = 0;
  bool explicit_ = false;                        // signs are listed; otherwise all are 1
  std::map<int64_t, std::vector<float>> signs_;  // by width
  std::set<std::string, std::less<>> weights_;
  bool embedding_ = false;
  bool delta_grouped_ = false;

  Status ReadSigns(const Metadata& meta);
  Status ReadWeights(const WeightStore& store, int64_t version);
  Status CheckWeight(const WeightStore& store, const std::string& name) const;
};

}  // namespace trine
