// Metadata: the typed key-value pairs of a model file, under GGUF's key names whatever the
// container is. It knows no key's meaning; the getters turn a missing or ill-typed key into an
// error that names the key.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/core/result.h"

namespace trine {

// Integers of every width are kept as int64 (u64 values beyond int64 are refused by the readers).
using MetaValue = std::variant<bool, int64_t, double, std::string, std::vector<bool>,
                               std::vector<int64_t>, std::vector<double>, std::vector<std::string>>;

class Metadata {
 public:
  // false if the key is there already.
  bool Insert(std::string key, MetaValue value);

  const MetaValue* Find(std::string_view key) const;  // nullptr if absent; owned by this
  const std::map<std::string, MetaValue, std::less<>>& entries() const { return entries_; }

  // Required keys: an error if absent or of another type. Int accepts integers, Float numbers.
  Result<int64_t> Int(std::string_view key) const;
  Result<double> Float(std::string_view key) const;
  Result<std::string> String(std::string_view key) const;

  // Optional keys: the fallback if absent; an error if present with another type.
  Result<int64_t> IntOr(std::string_view key, int64_t fallback) const;
  Result<double> FloatOr(std::string_view key, double fallback) const;
  Result<bool> BoolOr(std::string_view key, bool fallback) const;
  Result<std::string> StringOr(std::string_view key, std::string fallback) const;

  // Arrays stay where they are: nullptr if absent, an error if of another type.
  Result<const std::vector<std::string>*> Strings(std::string_view key) const;
  Result<const std::vector<bool>*> Bools(std::string_view key) const;
  Result<const std::vector<int64_t>*> Ints(std::string_view key) const;
  Result<const std::vector<double>*> Floats(std::string_view key) const;

 private:
  std::map<std::string, MetaValue, std::less<>> entries_;
};

}  // namespace trine
