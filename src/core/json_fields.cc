#include "src/core/json_fields.h"

#include "src/core/quote.h"

namespace trine {
namespace {

const nlohmann::json kNull;

using Handler = nlohmann::json::error_handler_t;

std::string Shown(const nlohmann::json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  if (value.is_string()) return ShownText(value.get_ref<const std::string&>());
  return value.dump();
}

// A key of a file in a path.
std::string Step(std::string_view key) {
  const std::string quoted = Quote(key);
  const bool plain = quoted.size() == key.size() + 2;  // nothing cut and nothing escaped
  return plain ? std::string(key) : quoted;
}

}  // namespace

std::string ShownText(const std::string& text) {
  constexpr size_t kMost = 60;
  const bool cut = text.size() > kMost;
  const nlohmann::json head = cut ? text.substr(0, kMost) : text;
  return head.dump(-1, ' ', /*ensure_ascii=*/true, cut ? Handler::ignore : Handler::replace) +
         (cut ? "..." : "");
}

JsonField JsonField::operator[](std::string_view key) const {
  std::string path = path_.empty() ? Step(key) : path_ + "." + Step(key);
  if (!value_->is_object()) return {kNull, std::move(path)};
  const auto found = value_->find(std::string(key));
  return {found == value_->end() ? kNull : *found, std::move(path)};
}

JsonField JsonField::operator[](size_t index) const {
  return {(*value_)[index], path_ + "[" + std::to_string(index) + "]"};
}

Result<std::string> JsonField::String() const {
  if (!value_->is_string()) return Refuse("a string is needed");
  return value_->get<std::string>();
}

Result<int64_t> JsonField::Int() const {
  const bool fits = value_->is_number_integer() &&
                    (!value_->is_number_unsigned() || value_->get<uint64_t>() <= INT64_MAX);
  if (!fits) return Refuse("an integer is needed");
  return value_->get<int64_t>();
}

Result<double> JsonField::Number() const {
  if (!value_->is_number()) return Refuse("a number is needed");
  return value_->get<double>();
}

Result<bool> JsonField::Bool() const {
  if (!value_->is_boolean()) return Refuse("true or false is needed");
  return value_->get<bool>();
}

Result<std::vector<JsonField>> JsonField::Items() const {
  if (!value_->is_array()) return Refuse("an array is needed");
  std::vector<JsonField> items;
  items.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) items.push_back((*this)[i]);
  return items;
}

Result<std::string> JsonField::Type() const {
  if (is_null()) return std::string("null");
  return (*this)["type"].String();
}

Status JsonField::Refuse(const std::string& why) const {
  return BadInput(path_ + " is " + (is_null() ? "null or missing" : Shown(*value_)) + "; " + why);
}

Result<nlohmann::json> ParseJson(std::string_view text, const std::string& name) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    std::string what = error.what();  // "[json.exception.parse_error.101] parse error at ..."
    what.erase(0, what.find("] ") == std::string::npos ? 0 : what.find("] ") + 2);
    // Behind these words comes what the file says, however long.
    constexpr std::string_view kFromFile = "last read: ";
    const size_t said = what.find(kFromFile);
    if (said != std::string::npos) {
      const size_t begin = said + kFromFile.size();
      what = what.substr(0, begin) + Quote(what.substr(begin));
    }
    return BadInput(name + " is no JSON: " + what + "; fetch the file again");
  }
}

}  // namespace trine
