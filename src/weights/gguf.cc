// The GGUF reader. Nothing is allocated that the file cannot hold, and every error names the file,
// the field, its value and what would be right.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <unordered_set>

#include "src/core/quote.h"
#include "src/weights/gguf_format.h"
#include "src/weights/weight_store.h"

namespace trine {
namespace {

using namespace gguf;

static_assert(std::endian::native == std::endian::little, "GGUF is read as little endian");

constexpr int64_t kMaxKeyBytes = 65535;
constexpr int64_t kMaxStringBytes = int64_t{1} << 20;
constexpr int64_t kMaxTensors = 65536;
constexpr int64_t kMaxKeys = 65536;
constexpr int64_t kMaxArray = int64_t{1} << 21;

constexpr char kDamaged[] = "; it is truncated or damaged, get it again";

// Bytes of a value in the file; for strings and arrays the least they can take.
int64_t ValueBytes(uint32_t type) {
  constexpr int64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
  return type < std::size(kBytes) ? kBytes[type] : 0;
}

std::string AlsoKnown(uint32_t id) {
  std::string list;
  for (const DTypeInfo& info : kDTypes) {
    list += (list.empty() ? "" : ", ") + std::string(info.name) + " (" +
            std::to_string(info.ggml_id) + ")";
  }
  return std::to_string(id) + "; this version reads " + list;
}

// A forward reader over the header with a window of its own.
class Header {
 public:
  explicit Header(const File& file) : file_(file) {}

  int64_t position() const { return position_; }
  int64_t remaining() const { return file_.size() - position_; }

  Status Error(const std::string& what) const { return BadInput(file_.path() + ": " + what); }

  Status Bytes(const std::string& field, int64_t n, void* out) {
    if (n > remaining()) {
      return Error(field + " needs " + std::to_string(n) + " bytes at " +
                   std::to_string(position_) + ", the file ends at " +
                   std::to_string(file_.size()) + kDamaged);
    }
    auto* to = static_cast<std::byte*>(out);
    while (n > 0) {
      if (position_ < window_begin_ || position_ >= window_end()) TRINE_RETURN_IF_ERROR(Fill());
      const int64_t take = std::min(n, window_end() - position_);
      std::memcpy(to, window_.data() + (position_ - window_begin_), static_cast<size_t>(take));
      to += take;
      position_ += take;
      n -= take;
    }
    return {};
  }

  template <typename T>
  Result<T> Value(const std::string& field) {
    T value;
    TRINE_RETURN_IF_ERROR(Bytes(field, sizeof value, &value));
    return value;
  }

  Result<std::string> String(const std::string& field, int64_t limit) {
    TRINE_ASSIGN(const uint64_t length, Value<uint64_t>(field));
    if (length > static_cast<uint64_t>(std::min(limit, remaining()))) {
      return Error(field + " is a string of " + std::to_string(length) + " bytes; at most " +
                   std::to_string(std::min(limit, remaining())) + " are possible here" + kDamaged);
    }
    std::string text(length, '\0');
    TRINE_RETURN_IF_ERROR(Bytes(field, static_cast<int64_t>(length), text.data()));
    return text;
  }

  // A count of things that take at least `least` bytes each.
  Result<int64_t> Count(const std::string& field, int64_t least, int64_t limit) {
    TRINE_ASSIGN(const uint64_t count, Value<uint64_t>(field));
    const int64_t most = std::min(limit, remaining() / least);
    if (count > static_cast<uint64_t>(most)) {
      return Error(field + " is " + std::to_string(count) + "; at most " + std::to_string(most) +
                   " fit in the rest of the file" + kDamaged);
    }
    return static_cast<int64_t>(count);
  }

 private:
  int64_t window_end() const { return window_begin_ + static_cast<int64_t>(window_.size()); }

  Status Fill() {
    window_begin_ = position_;
    window_.resize(static_cast<size_t>(std::min<int64_t>(remaining(), int64_t{1} << 16)));
    return file_.Read(position_, static_cast<int64_t>(window_.size()), window_.data());
  }

  const File& file_;
  int64_t position_ = 0;
  int64_t window_begin_ = 0;
  std::vector<std::byte> window_;
};

template <typename T>
Result<int64_t> Integer(Header& header, const std::string& field) {
  TRINE_ASSIGN(const T value, header.Value<T>(field));
  if constexpr (std::is_same_v<T, uint64_t>) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return header.Error(field + " is " + std::to_string(value) + ", beyond 2^63 - 1");
    }
  }
  return static_cast<int64_t>(value);
}

Result<int64_t> IntegerOf(Header& header, uint32_t type, const std::string& field) {
  switch (type) {
    case kU8:
      return Integer<uint8_t>(header, field);
    case kI8:
      return Integer<int8_t>(header, field);
    case kU16:
      return Integer<uint16_t>(header, field);
    case kI16:
      return Integer<int16_t>(header, field);
    case kU32:
      return Integer<uint32_t>(header, field);
    case kI32:
      return Integer<int32_t>(header, field);
    case kU64:
      return Integer<uint64_t>(header, field);
    default:
      return Integer<int64_t>(header, field);
  }
}

Result<double> FloatOf(Header& header, uint32_t type, const std::string& field) {
  if (type == kF64) return header.Value<double>(field);
  TRINE_ASSIGN(const float value, header.Value<float>(field));
  return static_cast<double>(value);
}

template <typename T, typename ReadOne>
Result<MetaValue> ReadArray(int64_t count, ReadOne read_one) {
  std::vector<T> values;
  values.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    TRINE_ASSIGN(auto value, read_one());
    values.push_back(std::move(value));
  }
  return MetaValue(std::move(values));
}

Result<bool> BoolOf(Header& header, const std::string& field) {
  TRINE_ASSIGN(const uint8_t value, header.Value<uint8_t>(field));
  return value != 0;
}

Result<MetaValue> ArrayValue(Header& header, const std::string& field) {
  TRINE_ASSIGN(const uint32_t type, header.Value<uint32_t>(field));
  if (type == kArray || ValueBytes(type) == 0) {
    return header.Error(field + " is an array of type " + std::to_string(type) +
                        "; plain values and strings are possible");
  }
  TRINE_ASSIGN(const int64_t count, header.Count(field + " (length)", ValueBytes(type), kMaxArray));
  switch (type) {
    case kBool:
      return ReadArray<bool>(count, [&] { return BoolOf(header, field); });
    case kString:
      return ReadArray<std::string>(count, [&] { return header.String(field, kMaxStringBytes); });
    case kF32:
    case kF64:
      return ReadArray<double>(count, [&] { return FloatOf(header, type, field); });
    default:
      return ReadArray<int64_t>(count, [&] { return IntegerOf(header, type, field); });
  }
}

template <typename T>
Result<MetaValue> AsMeta(Result<T> value) {
  if (!value.ok()) return value.status();
  return MetaValue(std::move(*value));
}

Result<MetaValue> ReadValue(Header& header, uint32_t type, const std::string& field) {
  switch (type) {
    case kBool:
      return AsMeta(BoolOf(header, field));
    case kString:
      return AsMeta(header.String(field, kMaxStringBytes));
    case kF32:
    case kF64:
      return AsMeta(FloatOf(header, type, field));
    case kArray:
      return ArrayValue(header, field);
    default:
      if (ValueBytes(type) == 0) {
        return header.Error(field + " has value type " + std::to_string(type) +
                            "; types 0 to 12 exist");
      }
      return AsMeta(IntegerOf(header, type, field));
  }
}

// What type id 42 means in a file: Q2_0, or what its first users wrote under that number, groups of
// 128 (now PQ2_0). Nothing in the file says so but the room that each tensor has.
enum class Id42 { kUnknown, kQ2_0, kPQ2_0 };

struct Part {
  Metadata metadata;
  std::vector<TensorInfo> tensors;
  Id42 id42 = Id42::kUnknown;
};

Status ReadMagic(Header& header) {
  if (header.remaining() == 0) return header.Error("the file is empty (0 bytes); get it again");
  char magic[4] = {};
  TRINE_RETURN_IF_ERROR(header.Bytes("magic", 4, magic));
  if (std::memcmp(magic, "GGUF", 4) != 0) {
    return header.Error("not a GGUF file: it starts with " + Quote({magic, 4}) +
                        " instead of 'GGUF'");
  }
  TRINE_ASSIGN(const uint32_t version, header.Value<uint32_t>("version"));
  if ((version & 0xFFFF) == 0) {
    return header.Error("big-endian GGUF (version field " + std::to_string(version) +
                        "); only little endian is read");
  }
  if (version != 2 && version != 3) {
    return header.Error("GGUF version " + std::to_string(version) + "; 2 and 3 are read");
  }
  return {};
}

Status ReadKeys(Header& header, int64_t count, Metadata& metadata) {
  for (int64_t i = 0; i < count; ++i) {
    const std::string nth = "metadata key " + std::to_string(i);
    TRINE_ASSIGN(std::string key, header.String(nth, kMaxKeyBytes));
    if (key.empty()) return header.Error(nth + " is empty; keys have names");
    TRINE_ASSIGN(const uint32_t type, header.Value<uint32_t>(Quote(key)));
    if (key == "general.alignment" && type != kU32) {
      return header.Error("'general.alignment' has value type " + std::to_string(type) +
                          "; it must be u32 (4)");
    }
    TRINE_ASSIGN(MetaValue value, ReadValue(header, type, Quote(key)));
    if (!metadata.Insert(key, std::move(value))) {
      return header.Error("metadata key " + Quote(key) + " occurs twice");
    }
  }
  return {};
}

Result<int64_t> Alignment(const Header& header, const Metadata& metadata) {
  TRINE_ASSIGN(const int64_t alignment, metadata.IntOr("general.alignment", kDefaultAlignment));
  if (alignment <= 0 || (alignment & (alignment - 1)) != 0) {
    return header.Error("'general.alignment' is " + std::to_string(alignment) +
                        "; it must be a power of two");
  }
  return alignment;
}

// Shape, type and size of one tensor; `offset` is left relative to the data section.
Result<TensorInfo> ReadTensor(Header& header, int64_t index) {
  TensorInfo tensor;
  const std::string nth = "name of tensor " + std::to_string(index);
  TRINE_ASSIGN(tensor.name, header.String(nth, kMaxNameBytes));
  if (tensor.name.empty()) return header.Error(nth + " is empty");
  const std::string what = "tensor " + Quote(tensor.name);
  TRINE_ASSIGN(const uint32_t dims, header.Value<uint32_t>(what));
  if (dims < 1 || dims > kMaxDims) {
    return header.Error(what + " has " + std::to_string(dims) + " dimensions; 1 to 4 are possible");
  }
  constexpr int64_t kMaxElements = std::numeric_limits<int64_t>::max() / 8;
  int64_t elements = 1;
  for (uint32_t d = 0; d < dims; ++d) {
    TRINE_ASSIGN(const uint64_t size, header.Value<uint64_t>(what));
    if (size < 1 || size > static_cast<uint64_t>(kMaxElements / elements)) {
      return header.Error(what + ": dimension " + std::to_string(d) + " is " +
                          std::to_string(size) + "; it must be at least 1 and fit in memory");
    }
    tensor.shape.push_back(static_cast<int64_t>(size));
    elements *= static_cast<int64_t>(size);
  }
  TRINE_ASSIGN(const uint32_t id, header.Value<uint32_t>(what));
  const auto* info = std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](const auto& entry) {
    return static_cast<uint32_t>(entry.ggml_id) == id;
  });
  if (info == std::end(kDTypes)) return header.Error(what + " has type " + AlsoKnown(id));
  tensor.type = info->type;
  if (tensor.cols() % info->block_elems != 0) {
    return header.Error(what + ": rows of " + std::to_string(tensor.cols()) +
                        " values are not whole blocks of " + std::to_string(info->block_elems) +
                        " (" + info->name + ")");
  }
  tensor.bytes = elements / info->block_elems * info->block_bytes;
  TRINE_ASSIGN(const uint64_t offset, header.Value<uint64_t>(what));
  if (offset > static_cast<uint64_t>(std::numeric_limits<int64_t>::max() / 4)) {
    return header.Error(what + " starts at offset " + std::to_string(offset) +
                        ", beyond the end of the file");
  }
  tensor.offset = static_cast<int64_t>(offset);
  return tensor;
}

// `room`: bytes from this tensor's start to the next one's, or to the end of the file. Too little
// for either kind, which truncation leaves, says nothing.
Id42 Id42ByRoom(const TensorInfo& tensor, int64_t room, int64_t alignment) {
  if (tensor.cols() % Info(DType::kPQ2_0).block_elems != 0) return Id42::kQ2_0;
  const int64_t legacy = RowBytes(DType::kPQ2_0, tensor.elements());
  if (room < legacy || AlignUp(legacy, alignment) == AlignUp(tensor.bytes, alignment))
    return Id42::kUnknown;
  return room == legacy || room == AlignUp(legacy, alignment) ? Id42::kPQ2_0 : Id42::kQ2_0;
}

void Retag(std::vector<TensorInfo>& tensors) {
  for (TensorInfo& tensor : tensors) {
    if (tensor.type != DType::kQ2_0) continue;
    const int64_t elements = tensor.elements();
    tensor.type = DType::kPQ2_0;
    tensor.bytes = RowBytes(tensor.type, elements);
  }
}

// Decides by all tensors of the id, which must agree, and retags them if they are the old kind.
// Offsets are still relative to the data section, `data_bytes` long.
Result<Id42> DecideId42(const Header& header, int64_t alignment, int64_t data_bytes,
                        std::vector<TensorInfo>& tensors) {
  std::vector<const TensorInfo*> by_offset;
  for (const TensorInfo& tensor : tensors) by_offset.push_back(&tensor);
  std::sort(by_offset.begin(), by_offset.end(),
            [](const auto* a, const auto* b) { return a->offset < b->offset; });
  Id42 decided = Id42::kUnknown;
  const TensorInfo* decider = nullptr;
  for (size_t i = 0; i < by_offset.size(); ++i) {
    const TensorInfo& tensor = *by_offset[i];
    if (tensor.type != DType::kQ2_0) continue;
    const int64_t end = i + 1 < by_offset.size() ? by_offset[i + 1]->offset : data_bytes;
    const Id42 found = Id42ByRoom(tensor, end - tensor.offset, alignment);
    if (found == Id42::kUnknown) continue;
    if (decided != Id42::kUnknown && found != decided) {
      const TensorInfo& old = found == Id42::kPQ2_0 ? tensor : *decider;
      const TensorInfo& current = found == Id42::kPQ2_0 ? *decider : tensor;
      return header.Error("type 42 means groups of 128 in tensor " + Quote(old.name) +
                          " and of 64 in " + Quote(current.name) +
                          ", by the room they have; convert the file again");
    }
    decided = found;
    decider = &tensor;
  }
  if (decided == Id42::kPQ2_0) Retag(tensors);
  return decided;
}

// Makes offsets absolute (the data section begins at `data`) and checks that every tensor lies in
// the file, alone.
Status PlaceTensors(const Header& header, const File& file, int64_t alignment, int64_t data,
                    int file_index, std::vector<TensorInfo>& tensors) {
  std::vector<const TensorInfo*> by_offset;
  for (TensorInfo& tensor : tensors) {
    const std::string what = "tensor " + Quote(tensor.name);
    if (tensor.offset % alignment != 0) {
      return header.Error(what + " starts at offset " + std::to_string(tensor.offset) +
                          ", not a multiple of the alignment " + std::to_string(alignment));
    }
    tensor.file = file_index;
    tensor.offset += data;
    if (tensor.bytes > file.size() || tensor.offset > file.size() - tensor.bytes) {
      return header.Error(what + " needs bytes " + std::to_string(tensor.offset) + " to " +
                          std::to_string(tensor.offset + tensor.bytes) + ", the file ends at " +
                          std::to_string(file.size()) + kDamaged);
    }
    by_offset.push_back(&tensor);
  }
  std::sort(by_offset.begin(), by_offset.end(),
            [](const auto* a, const auto* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const TensorInfo &before = *by_offset[i - 1], &after = *by_offset[i];
    if (before.offset + before.bytes > after.offset) {
      return header.Error("tensors " + Quote(before.name) + " and " + Quote(after.name) +
                          " overlap at byte " + std::to_string(after.offset));
    }
  }
  return {};
}

Result<Part> ReadPart(const File& file, int file_index) {
  Header header(file);
  Part part;
  TRINE_RETURN_IF_ERROR(ReadMagic(header));
  TRINE_ASSIGN(const int64_t tensors, header.Count("tensor count", 24, kMaxTensors));
  TRINE_ASSIGN(const int64_t keys, header.Count("metadata count", 13, kMaxKeys));
  TRINE_RETURN_IF_ERROR(ReadKeys(header, keys, part.metadata));
  TRINE_ASSIGN(const int64_t alignment, Alignment(header, part.metadata));
  std::unordered_set<std::string> names;
  for (int64_t i = 0; i < tensors; ++i) {
    TRINE_ASSIGN(TensorInfo tensor, ReadTensor(header, i));
    if (!names.insert(tensor.name).second) {
      return header.Error("tensor " + Quote(tensor.name) + " occurs twice");
    }
    part.tensors.push_back(std::move(tensor));
  }
  const int64_t data = AlignUp(header.position(), alignment);
  TRINE_ASSIGN(part.id42, DecideId42(header, alignment, file.size() - data, part.tensors));
  TRINE_RETURN_IF_ERROR(PlaceTensors(header, file, alignment, data, file_index, part.tensors));
  return part;
}

// -%05d-of-%05d.gguf, which a part's name ends in.
std::string PartSuffix(int64_t number, int64_t count) {
  char suffix[64];
  std::snprintf(suffix, sizeof suffix, "-%05lld-of-%05lld.gguf", static_cast<long long>(number),
                static_cast<long long>(count));
  return suffix;
}

Status CheckSplitKey(const std::string& path, const Metadata& metadata, const std::string& key,
                     int64_t expected) {
  TRINE_ASSIGN(const int64_t value, metadata.IntOr(key, -1));
  if (value == expected) return {};
  return BadInput(path + ": '" + key + "' is " + std::to_string(value) + "; " +
                  std::to_string(expected) + " expected of this part");
}

// The other parts of a split model: part 0 holds the metadata, all hold tensors.
Status ReadOtherParts(const std::string& first, int64_t count, Id42 id42, ModelFiles& model) {
  constexpr int64_t kMaxParts = 99999;
  TRINE_ASSIGN(const int64_t first_no, model.metadata.IntOr("split.no", 0));
  const std::string suffix = PartSuffix(1, count);
  if (first_no != 0) {
    return BadInput(first + " is part " + std::to_string(first_no + 1) +
                    " of a split model; give the first, whose name ends in " + suffix);
  }
  if (count < 1 || count > kMaxParts || !first.ends_with(suffix)) {
    return BadInput(first + ": 'split.count' is " + std::to_string(count) +
                    "; the first part of a split model has a name that ends in " +
                    PartSuffix(1, std::clamp<int64_t>(count, 1, kMaxParts)));
  }
  const std::string prefix = first.substr(0, first.size() - suffix.size());
  std::unordered_set<std::string> names;
  for (const TensorInfo& tensor : model.tensors) names.insert(tensor.name);
  for (int64_t no = 1; no < count; ++no) {
    const std::string path = prefix + PartSuffix(no + 1, count);
    TRINE_ASSIGN(File file, File::Open(path));
    TRINE_ASSIGN(Part part, ReadPart(file, static_cast<int>(no)));
    TRINE_RETURN_IF_ERROR(CheckSplitKey(path, part.metadata, "split.no", no));
    TRINE_RETURN_IF_ERROR(CheckSplitKey(path, part.metadata, "split.count", count));
    if (id42 != Id42::kUnknown && part.id42 != Id42::kUnknown && part.id42 != id42) {
      return BadInput(path + ": type 42 means groups of " + (id42 == Id42::kPQ2_0 ? "64" : "128") +
                      " here and of " + (id42 == Id42::kPQ2_0 ? "128" : "64") +
                      " in an earlier part; convert the model again");
    }
    if (id42 == Id42::kUnknown) id42 = part.id42;
    for (TensorInfo& tensor : part.tensors) {
      if (!names.insert(tensor.name).second) {
        return BadInput(path + ": tensor " + Quote(tensor.name) + " is in an earlier part too");
      }
      model.tensors.push_back(std::move(tensor));
    }
    model.files.push_back(std::move(file));
  }
  if (id42 == Id42::kPQ2_0) Retag(model.tensors);  // those that could be either, too
  return CheckSplitKey(first, model.metadata, "split.tensors.count",
                       static_cast<int64_t>(model.tensors.size()));
}

}  // namespace

Result<ModelFiles> ReadGguf(const std::string& path) {
  ModelFiles model;
  model.name = path;
  TRINE_ASSIGN(File file, File::Open(path));
  TRINE_ASSIGN(Part part, ReadPart(file, 0));
  model.metadata = std::move(part.metadata);
  model.tensors = std::move(part.tensors);
  model.files.push_back(std::move(file));
  TRINE_ASSIGN(const int64_t count, model.metadata.IntOr("split.count", 1));
  if (count != 1) TRINE_RETURN_IF_ERROR(ReadOtherParts(path, count, part.id42, model));
  return model;
}

}  // namespace trine
