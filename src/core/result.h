// Result<T>: a value or the Status that explains its absence. For bad input only; a broken world
// (device, comm, a failed check) ends the process instead, see check.h.
#pragma once

#include <optional>
#include <utility>

#include "comm/status.h"
#include "src/core/check.h"

namespace trine {

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {  // NOLINT: implicit on purpose
    TRINE_CHECK(!status_.ok(), "a Result without a value needs an error");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // Only where ok().
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

// Passes an error on to the caller.
#define TRINE_RETURN_IF_ERROR(expr)                        \
  do {                                                     \
    if (::trine::Status status_ = (expr); !status_.ok()) { \
      return status_;                                      \
    }                                                      \
  } while (false)

#define TRINE_CONCAT_INNER(a, b) a##b
#define TRINE_CONCAT(a, b) TRINE_CONCAT_INNER(a, b)
#define TRINE_ASSIGN_INNER(result, lhs, expr) \
  auto result = (expr);                       \
  if (!result.ok()) return result.status();   \
  lhs = std::move(*result)

// `TRINE_ASSIGN(auto x, MakeX())`: the value, or the error passed on to the caller.
#define TRINE_ASSIGN(lhs, expr) TRINE_ASSIGN_INNER(TRINE_CONCAT(result_, __LINE__), lhs, expr)

}  // namespace trine
