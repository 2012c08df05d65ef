// What every fuzz target asks of a refusal.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>

#include "src/core/result.h"

namespace trine {

// The message is of printable characters and begins with the path, if it is of the file.
template <typename T>
void CheckRefusal(const Result<T>& result, const std::string& path) {
  if (result.ok()) return;
  const std::string& message = result.status().message();
  const bool printable = std::none_of(message.begin(), message.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
  });
  if (message.empty() || !printable || !message.starts_with(path)) std::abort();
}

}  // namespace trine
