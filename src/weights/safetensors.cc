#include "src/weights/safetensors.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "src/core/json_fields.h"
#include "src/core/quote.h"

namespace trine {
namespace {

using nlohmann::json;

constexpr int64_t kMaxHeader = 100'000'000;  // the reference reader's limit, too
constexpr int64_t kMaxIndex = 100'000'000;
constexpr int64_t kMaxDims = 8;
constexpr char kDamaged[] = "; it is truncated or damaged, get it again";

Status InFile(const File& file, const std::string& what) {
  return BadInput(file.path() + ": " + what);
}

Result<std::string> ReadText(const File& file, int64_t offset, int64_t bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  TRINE_RETURN_IF_ERROR(file.Read(offset, bytes, reinterpret_cast<std::byte*>(text.data())));
  return text;
}

// As ParseJson, which keeps the last of two equal keys; here they are an error. Deep nesting is
// cut: neither headers nor indices have any.
Result<json> ParseTable(const std::string& text, const std::string& name) {
  std::set<std::string> keys;
  std::string twice;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::key && depth == 1 && parsed.is_string() &&
        !keys.insert(parsed.get<std::string>()).second) {
      twice = parsed.get<std::string>();
    }
    return depth < 6;
  };
  json table = json::parse(text, watch, /*allow_exceptions=*/false);
  if (table.is_discarded() || !table.is_object()) {
    TRINE_ASSIGN(table, ParseJson(text, name));
    return BadInput(name + " is no JSON object; get the file again");
  }
  if (!twice.empty()) return BadInput(name + ": " + Quote(twice) + " occurs twice");
  return table;
}

Result<std::vector<int64_t>> ReadShape(const JsonField& field) {
  TRINE_ASSIGN(const std::vector<JsonField> sizes, field.Items());
  if (std::ssize(sizes) > kMaxDims) {
    return field.Refuse("at most " + std::to_string(kMaxDims) + " dimensions are read");
  }
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 8;
  std::vector<int64_t> shape;
  int64_t elements = 1;
  for (const JsonField& item : sizes) {
    TRINE_ASSIGN(const int64_t size, item.Int());
    if (size < 0 || size > kMost / std::max<int64_t>(elements, 1)) {
      return item.Refuse("sizes are not negative and their product fits 60 bits");
    }
    shape.push_back(size);
    elements *= size;
  }
  return shape;
}

// One entry of a header, `data` being where the data section begins.
Result<SafetensorsTensor> ReadTensor(const File& file, const std::string& name,
                                     const JsonField& entry, int64_t data) {
  SafetensorsTensor tensor;
  tensor.name = name;
  TRINE_ASSIGN(tensor.dtype, entry["dtype"].String());
  TRINE_ASSIGN(tensor.shape, ReadShape(entry["shape"]));
  const JsonField offsets = entry["data_offsets"];
  TRINE_ASSIGN(const std::vector<JsonField> ends, offsets.Items());
  if (ends.size() != 2) return offsets.Refuse("two numbers, begin and end, are needed");
  TRINE_ASSIGN(const int64_t begin, ends[0].Int());
  TRINE_ASSIGN(const int64_t end, ends[1].Int());
  if (begin < 0 || end < begin || end > file.size() - data) {
    return BadInput("tensor " + Quote(name) + " has data from " + std::to_string(begin) + " to " +
                    std::to_string(end) + " of " + std::to_string(file.size() - data) + " bytes" +
                    kDamaged);
  }
  tensor.offset = data + begin;
  tensor.bytes = end - begin;
  int64_t elements = 1;
  for (const int64_t size : tensor.shape) elements *= size;
  const int64_t width = SafetensorsValueBytes(tensor.dtype);
  if (width != 0 && elements * width != tensor.bytes) {
    return BadInput("tensor " + Quote(name) + " has " + std::to_string(tensor.bytes) +
                    " bytes; its shape and type " + tensor.dtype + " need " +
                    std::to_string(elements * width) + kDamaged);
  }
  return tensor;
}

Status CheckOverlap(std::vector<SafetensorsTensor>& tensors) {
  std::vector<const SafetensorsTensor*> by_offset;
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.bytes > 0) by_offset.push_back(&tensor);
  }
  std::sort(by_offset.begin(), by_offset.end(),
            [](const auto* a, const auto* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const SafetensorsTensor &before = *by_offset[i - 1], &after = *by_offset[i];
    if (before.offset + before.bytes > after.offset) {
      return BadInput("tensors " + Quote(before.name) + " and " + Quote(after.name) +
                      " overlap at byte " + std::to_string(after.offset));
    }
  }
  return {};
}

// Length of the header (u64, little endian), the header as JSON, data.
Result<std::vector<SafetensorsTensor>> ReadHeader(const File& file) {
  uint64_t length = 0;
  if (file.size() < 8) {
    return InFile(file, "the file has " + std::to_string(file.size()) +
                            " bytes, a safetensors file at least 8" + kDamaged);
  }
  TRINE_RETURN_IF_ERROR(file.Read(0, 8, reinterpret_cast<std::byte*>(&length)));
  const int64_t most = std::min(kMaxHeader, file.size() - 8);
  if (length > static_cast<uint64_t>(most)) {
    return InFile(file, "the header has " + std::to_string(length) + " bytes; at most " +
                            std::to_string(most) +
                            " are possible here; it is no safetensors file, or damaged");
  }
  const auto bytes = static_cast<int64_t>(length);
  TRINE_ASSIGN(const std::string text, ReadText(file, 8, bytes));
  TRINE_ASSIGN(const json header, ParseTable(text, file.path() + ": header"));
  std::vector<SafetensorsTensor> tensors;
  const JsonField root(header, "");
  for (const auto& [name, unused] : header.items()) {
    if (name == "__metadata__") continue;
    Result<SafetensorsTensor> tensor = ReadTensor(file, name, root[name], 8 + bytes);
    if (!tensor.ok()) return InFile(file, tensor.status().message());
    tensors.push_back(std::move(*tensor));
  }
  if (const Status apart = CheckOverlap(tensors); !apart.ok()) return InFile(file, apart.message());
  return tensors;
}

Status AddFile(const std::string& path, SafetensorsFiles& out) {
  TRINE_ASSIGN(File file, File::Open(path));
  TRINE_ASSIGN(std::vector<SafetensorsTensor> tensors, ReadHeader(file));
  for (SafetensorsTensor& tensor : tensors) {
    tensor.file = static_cast<int>(out.files.size());
    out.tensors.push_back(std::move(tensor));
  }
  out.files.push_back(std::move(file));
  return {};
}

// The names of the files in an index, and of the tensors that it promises in each.
using WeightMap = std::unordered_map<std::string, std::string>;

Result<WeightMap> ReadIndex(const std::string& path) {
  TRINE_ASSIGN(const File file, File::Open(path));
  if (file.size() > kMaxIndex) {
    return InFile(file, "an index of " + std::to_string(file.size()) + " bytes; at most " +
                            std::to_string(kMaxIndex) + " are read");
  }
  TRINE_ASSIGN(const std::string text, ReadText(file, 0, file.size()));
  TRINE_ASSIGN(const json index, ParseTable(text, path));
  const JsonField map = JsonField(index, "")["weight_map"];
  if (!map.value().is_object() || map.value().empty()) {
    return InFile(file, map.Refuse("tensor names and their files are needed").message());
  }
  WeightMap weights;
  for (const auto& [tensor, unused] : map.value().items()) {
    const Result<std::string> name = map[tensor].String();
    if (!name.ok()) return InFile(file, name.status().message());
    if (std::filesystem::path(*name).filename() != *name || !name->ends_with(".safetensors")) {
      return InFile(
          file,
          map[tensor].Refuse("the name of a .safetensors file beside it is needed").message());
    }
    weights.emplace(tensor, *name);
  }
  return weights;
}

Status AddIndexed(const std::string& path, SafetensorsFiles& out) {
  TRINE_ASSIGN(const WeightMap weights, ReadIndex(path));
  std::set<std::string> names;
  for (const auto& [tensor, name] : weights) names.insert(name);
  std::unordered_map<std::string, std::string> found;  // tensor -> file
  for (const std::string& name : names) {
    const size_t first = out.tensors.size();
    TRINE_RETURN_IF_ERROR(AddFile(std::filesystem::path(path).replace_filename(name), out));
    for (size_t i = first; i < out.tensors.size(); ++i) {
      const auto [it, added] = found.emplace(out.tensors[i].name, name);
      if (added) continue;
      return BadInput(path + ": tensor " + Quote(out.tensors[i].name) + " is in " + it->second +
                      " and in " + name + "; one of them belongs to another model");
    }
  }
  for (const auto& [tensor, name] : weights) {
    const auto it = found.find(tensor);
    if (it != found.end() && it->second == name) continue;
    return BadInput(path + ": tensor " + Quote(tensor) + " should be in " + name + " and is " +
                    (it == found.end() ? "in no file" : "in " + it->second) +
                    "; get the files again");
  }
  return {};
}

}  // namespace

int64_t SafetensorsValueBytes(std::string_view dtype) {
  constexpr std::pair<std::string_view, int64_t> kBytes[] = {
      {"F64", 8}, {"I64", 8}, {"U64", 8},  {"F32", 4},     {"I32", 4},
      {"U32", 4}, {"F16", 2}, {"BF16", 2}, {"I16", 2},     {"U16", 2},
      {"I8", 1},  {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (const auto& [name, bytes] : kBytes) {
    if (name == dtype) return bytes;
  }
  return 0;
}

Result<SafetensorsFiles> ReadSafetensors(const std::string& path) {
  SafetensorsFiles out;
  TRINE_RETURN_IF_ERROR(path.ends_with(".json") ? AddIndexed(path, out) : AddFile(path, out));
  std::sort(out.tensors.begin(), out.tensors.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

}  // namespace trine
