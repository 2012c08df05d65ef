// Status: success, or one line that says what is wrong. It lives on the ground floor because ranks
// agree on it (control.h). Result<T> in src/core/result.h adds a value.
#pragma once

#include <string>
#include <utility>

namespace trine {

// Whose mistake it is. kBadInput: a file, a flag or a request; kUsage: the command line itself.
enum class Code { kOk, kBadInput, kUsage };

// A cheap value. An error message names the thing, both values and the remedy, on one line.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

inline Status BadInput(std::string message) {
  return {Code::kBadInput, std::move(message)};
}

}  // namespace trine
