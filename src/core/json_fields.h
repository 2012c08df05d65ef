// JsonField: a value in a JSON file that knows its path there, so that each error names field,
// value and remedy. It knows no field's meaning.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/result.h"

namespace trine {

// The document must outlive its fields.
class JsonField {
 public:
  JsonField(const nlohmann::json& value, std::string path)
      : value_(&value), path_(std::move(path)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& path() const { return path_; }
  bool is_null() const { return value_->is_null(); }  // null, or the field is absent

  // A member of an object; null where this is none or has no such member.
  JsonField operator[](std::string_view key) const;
  JsonField operator[](size_t index) const;  // of an array, in range

  // An error if the value is of another type or absent.
  Result<std::string> String() const;
  Result<int64_t> Int() const;
  Result<double> Number() const;
  Result<bool> Bool() const;
  Result<std::vector<JsonField>> Items() const;  // of an array

  Result<int64_t> IntOr(int64_t fallback) const {
    return is_null() ? Result<int64_t>(fallback) : Int();
  }
  Result<double> NumberOr(double fallback) const {
    return is_null() ? Result<double>(fallback) : Number();
  }
  Result<bool> BoolOr(bool fallback) const { return is_null() ? Result<bool>(fallback) : Bool(); }

  // The value at the member "type"; "null" where this is null.
  Result<std::string> Type() const;

  // "PATH is VALUE; `why`".
  Status Refuse(const std::string& why) const;

 private:
  const nlohmann::json* value_;
  std::string path_;
};

// Text as JSON writes it: ASCII on one line, and not much of it.
std::string ShownText(const std::string& text);

// An error names the line and column. `name` is the file's.
Result<nlohmann::json> ParseJson(std::string_view text, const std::string& name);

}  // namespace trine
