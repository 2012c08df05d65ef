#include "src/eval/reference_logits.h"

#include <bit>

namespace trine {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr int64_t kFloatBytes = sizeof(float);

}  // namespace

Status ReferenceLogits::CheckRows(int64_t rows) const {
  const int64_t bytes = rows * vocab_ * kFloatBytes;
  if (file_.size() == bytes) return {};
  return BadInput(path() + " has " + std::to_string(file_.size()) + " bytes, but " +
                  std::to_string(rows) + " scored tokens and a vocabulary of " +
                  std::to_string(vocab_) + " make " + std::to_string(bytes) +
                  "; give what --save-logits wrote for the same text, --ctx-size and --chunks");
}

Result<std::span<const float>> ReferenceLogits::Read(int64_t first, int64_t n) {
  rows_.resize(static_cast<size_t>(n * vocab_));
  const auto bytes = std::as_writable_bytes(std::span(rows_));
  TRINE_RETURN_IF_ERROR(file_.Read(first * vocab_ * kFloatBytes, std::ssize(bytes), bytes.data()));
  return std::span<const float>(rows_);
}

}  // namespace trine
