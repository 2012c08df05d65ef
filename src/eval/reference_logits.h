// ReferenceLogits: the logits that another run of `trine perplexity --save-logits` wrote: f32,
// little endian, one row of the vocabulary for each scored token, no header. Read as the rows come.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/core/file.h"
#include "src/core/result.h"

namespace trine {

class ReferenceLogits {
 public:
  ReferenceLogits(File file, int64_t vocab) : file_(std::move(file)), vocab_(vocab) {}

  // Whether the file holds exactly `rows` rows; the error has both sizes.
  Status CheckRows(int64_t rows) const;

  // Rows [first, first + n), [n, vocab], valid until the next call. Blocks on the disk.
  Result<std::span<const float>> Read(int64_t first, int64_t n);

  const std::string& path() const { return file_.path(); }

 private:
  File file_;
  int64_t vocab_;
  std::vector<float> rows_;
};

}  // namespace trine
