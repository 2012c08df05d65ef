#include "src/core/metadata.h"

namespace trine {
namespace {

constexpr const char* kTypeNames[] = {"bool",   "integer",   "float",   "string",
                                      "bool[]", "integer[]", "float[]", "string[]"};

Status Mismatch(std::string_view key, const MetaValue& value, const char* wanted) {
  return BadInput("metadata key '" + std::string(key) + "' is of type " +
                  kTypeNames[value.index()] + "; " + wanted + " expected");
}

Status Missing(std::string_view key) {
  return BadInput("metadata key '" + std::string(key) + "' is missing; the file is incomplete");
}

template <typename T>
Result<T> Get(const Metadata& meta, std::string_view key, const char* wanted) {
  const MetaValue* value = meta.Find(key);
  if (value == nullptr) return Missing(key);
  if (const T* typed = std::get_if<T>(value)) return *typed;
  return Mismatch(key, *value, wanted);
}

template <typename T>
Result<const std::vector<T>*> GetArray(const Metadata& meta, std::string_view key,
                                       const char* wanted) {
  const MetaValue* value = meta.Find(key);
  if (value == nullptr) return static_cast<const std::vector<T>*>(nullptr);
  if (const auto* typed = std::get_if<std::vector<T>>(value)) return typed;
  return Mismatch(key, *value, wanted);
}

}  // namespace

bool Metadata::Insert(std::string key, MetaValue value) {
  return entries_.emplace(std::move(key), std::move(value)).second;
}

const MetaValue* Metadata::Find(std::string_view key) const {
  auto it = entries_.find(key);
  return it == entries_.end() ? nullptr : &it->second;
}

Result<int64_t> Metadata::Int(std::string_view key) const {
  return Get<int64_t>(*this, key, "an integer");
}

Result<double> Metadata::Float(std::string_view key) const {
  if (const MetaValue* value = Find(key)) {
    if (const auto* integer = std::get_if<int64_t>(value)) return static_cast<double>(*integer);
  }
  return Get<double>(*this, key, "a number");
}

Result<std::string> Metadata::String(std::string_view key) const {
  return Get<std::string>(*this, key, "a string");
}

Result<int64_t> Metadata::IntOr(std::string_view key, int64_t fallback) const {
  return Find(key) == nullptr ? Result<int64_t>(fallback) : Int(key);
}

Result<double> Metadata::FloatOr(std::string_view key, double fallback) const {
  return Find(key) == nullptr ? Result<double>(fallback) : Float(key);
}

Result<bool> Metadata::BoolOr(std::string_view key, bool fallback) const {
  return Find(key) == nullptr ? Result<bool>(fallback) : Get<bool>(*this, key, "a bool");
}

Result<std::string> Metadata::StringOr(std::string_view key, std::string fallback) const {
  return Find(key) == nullptr ? Result<std::string>(std::move(fallback)) : String(key);
}

Result<const std::vector<std::string>*> Metadata::Strings(std::string_view key) const {
  return GetArray<std::string>(*this, key, "an array of strings");
}

Result<const std::vector<bool>*> Metadata::Bools(std::string_view key) const {
  return GetArray<bool>(*this, key, "an array of bools");
}

Result<const std::vector<int64_t>*> Metadata::Ints(std::string_view key) const {
  return GetArray<int64_t>(*this, key, "an array of integers");
}

Result<const std::vector<double>*> Metadata::Floats(std::string_view key) const {
  return GetArray<double>(*this, key, "an array of floats");
}

}  // namespace trine
