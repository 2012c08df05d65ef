// Conversion: what becomes of every tensor of a model in another container, from headers alone. The
// bytes are made by row_converter.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/core/metadata.h"
#include "src/core/result.h"
#include "src/models/model.h"
#include "src/weights/hf_config.h"
#include "src/weights/rotation.h"
#include "src/weights/weight_store.h"

namespace trine {

enum class Container { kGguf, kHuggingFace };

// Place by place, where the source has it; empty: in the same place.
using Order = std::vector<int64_t>;

struct ConvertedTensor {
  TensorInfo out;  // name, type and shape as in GGUF; bytes are filled in, file and offset are not
  const TensorInfo* in = nullptr;  // of the source; nullptr: `values`
  std::vector<float> values;
  Order rows;                   // of a matrix
  Order columns;                // of a matrix, after its rotation is undone; or of a vector
  std::vector<float> unrotate;  // signs of the columns: the stored rows are in a rotated basis, and
                                // shall not be. Empty: nothing to undo
  int64_t block = 0;            // of the rotation
};

struct Conversion {
  Container target = Container::kGguf;
  std::vector<ConvertedTensor> tensors;  // in the order they are written
  Metadata metadata;                     // of the target, but for its tokenizer
  HfConfig config;                       // Hugging Face: what config.json says
  std::vector<float> rope_factors;       // Hugging Face: the values of rope_freqs.weight
  std::vector<std::string> unexpected;   // tensors that are no part of the model as known: left out
  std::vector<std::string> left_out;     // those that are known not to be
  std::vector<std::string> kept;         // matrices that their type suits no wider than it is

  int64_t bytes() const;       // of all tensors written
  int64_t read_bytes() const;  // of all that are read
};

// type: of the matrices; none: float types stay, and so does everything from GGUF to GGUF; to
// Hugging Face quantised ones become F16, and 16 bits of another kind than most have F32. A ternary
// type wants values that are ternary already: nothing is rounded to it. Vectors and convolutions
// are F32 in GGUF; in Hugging Face's files the type of the matrices if it holds their values
// exactly, else F32. GGUF to GGUF keeps tensors, order, basis and the values of the metadata
// whatever the architecture; where it has ternary matrices, a ternary type is for those alone. The
// other ways need an architecture that Trine knows, all of whose tensors are there: a list names
// the missing. To Hugging Face rotations are undone.
Result<Conversion> PlanConversion(const WeightStore& store, Container target,
                                  std::optional<DType> type);

}  // namespace trine
