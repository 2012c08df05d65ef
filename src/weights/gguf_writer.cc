#include "src/weights/gguf_writer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <unordered_set>

#include "src/core/output_file.h"
#include "src/core/quote.h"
#include "src/weights/gguf_format.h"

namespace trine {
namespace {

using namespace gguf;

static_assert(std::endian::native == std::endian::little, "GGUF is written as little endian");

constexpr int64_t kAlignment = kDefaultAlignment;

template <typename T>
bool Fits(int64_t value) {
  return value >= std::numeric_limits<T>::min() && value <= std::numeric_limits<T>::max();
}

// The bytes of a header as they grow.
class HeaderBuffer {
 public:
  const std::string& bytes() const { return bytes_; }

  template <typename T>
  void Put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  void Put(const std::string& text) {
    Put(static_cast<uint64_t>(text.size()));
    bytes_ += text;
  }

  void PutValue(const MetaValue& value) {
    std::visit([this](const auto& held) { Tagged(held); }, value);
  }

 private:
  void Tagged(bool value) {
    Put<uint32_t>(kBool);
    Put<uint8_t>(value ? 1 : 0);
  }

  void Tagged(int64_t value) {
    if (Fits<uint32_t>(value)) {
      Put<uint32_t>(kU32);
      Put(static_cast<uint32_t>(value));
    } else if (Fits<int32_t>(value)) {
      Put<uint32_t>(kI32);
      Put(static_cast<int32_t>(value));
    } else {
      Put<uint32_t>(kI64);
      Put(value);
    }
  }

  void Tagged(double value) {
    Put<uint32_t>(kF32);
    Put(static_cast<float>(value));
  }

  void Tagged(const std::string& text) {
    Put<uint32_t>(kString);
    Put(text);
  }

  void ArrayHead(ValueType type, size_t count) {
    Put<uint32_t>(kArray);
    Put<uint32_t>(type);
    Put<uint64_t>(count);
  }

  void Tagged(const std::vector<bool>& values) {
    ArrayHead(kBool, values.size());
    for (const bool value : values) Put<uint8_t>(value ? 1 : 0);
  }

  void Tagged(const std::vector<int64_t>& values) {
    const bool narrow = std::all_of(values.begin(), values.end(), Fits<int32_t>);
    ArrayHead(narrow ? kI32 : kI64, values.size());
    for (const int64_t value : values) {
      narrow ? Put(static_cast<int32_t>(value)) : Put(value);
    }
  }

  void Tagged(const std::vector<double>& values) {
    ArrayHead(kF32, values.size());
    for (const double value : values) Put(static_cast<float>(value));
  }

  void Tagged(const std::vector<std::string>& values) {
    ArrayHead(kString, values.size());
    for (const std::string& value : values) Put(value);
  }

  std::string bytes_;
};

// The header without the padding behind it. Its length does not depend on the offsets.
std::string MakeHeader(const Metadata& metadata, const std::vector<TensorInfo>& tensors,
                       int64_t data) {
  HeaderBuffer header;
  for (const char c : {'G', 'G', 'U', 'F'}) header.Put(c);
  header.Put<uint32_t>(3);
  header.Put<uint64_t>(tensors.size());
  header.Put<uint64_t>(metadata.entries().size());
  for (const auto& [key, value] : metadata.entries()) {
    header.Put(key);
    header.PutValue(value);
  }
  for (const TensorInfo& tensor : tensors) {
    header.Put(tensor.name);
    header.Put(static_cast<uint32_t>(tensor.shape.size()));
    for (const int64_t size : tensor.shape) header.Put(static_cast<uint64_t>(size));
    header.Put(static_cast<uint32_t>(Info(tensor.type).ggml_id));
    header.Put(static_cast<uint64_t>(tensor.offset - data));
  }
  return header.bytes();
}

Status CheckTensor(const TensorInfo& tensor) {
  const std::string what = "tensor " + Quote(tensor.name);
  if (tensor.name.empty() || std::ssize(tensor.name) > kMaxNameBytes) {
    return BadInput(what + " has a name of " + std::to_string(tensor.name.size()) +
                    " bytes; GGUF holds 1 to " + std::to_string(kMaxNameBytes));
  }
  if (tensor.shape.empty() || std::ssize(tensor.shape) > kMaxDims) {
    return BadInput(what + " has " + std::to_string(tensor.shape.size()) +
                    " dimensions; GGUF holds 1 to " + std::to_string(kMaxDims));
  }
  int64_t elements = 1;
  for (const int64_t size : tensor.shape) {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 8;
    if (size < 1 || size > kMost / elements) {
      return BadInput(what + " has shape " + ShapeText(tensor.shape) +
                      "; sizes are at least 1 and their product fits 60 bits");
    }
    elements *= size;
  }
  const DTypeInfo& type = Info(tensor.type);
  if (tensor.cols() % type.block_elems != 0) {
    return BadInput(what + ": rows of " + std::to_string(tensor.cols()) +
                    " values are not whole blocks of " + std::to_string(type.block_elems) + " (" +
                    type.name + "); choose another type for it");
  }
  return {};
}

Status CheckSpace(const std::string& path, int64_t needed) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::weakly_canonical(path, error).parent_path();
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error || space.available >= static_cast<uintmax_t>(needed)) return {};
  return BadInput(path + " needs " + std::to_string(needed) + " bytes, " +
                  std::to_string(space.available) + " are free on that disk");
}

// Passes bytes on and knows where in the file the next one goes.
class Stream {
 public:
  explicit Stream(OutputFile& file) : file_(file) {}

  int64_t position() const { return position_; }

  Status Write(std::span<const std::byte> bytes) {
    position_ += std::ssize(bytes);
    return file_.Write(bytes);
  }

  Status Pad() {
    constexpr std::byte kZeros[kAlignment] = {};
    const int64_t n = AlignUp(position_, kAlignment) - position_;
    return Write(std::span(kZeros).first(static_cast<size_t>(n)));
  }

 private:
  OutputFile& file_;
  int64_t position_ = 0;
};

Status WriteTensors(const std::vector<TensorInfo>& tensors, const TensorProducer& produce,
                    Stream& stream) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& tensor = tensors[i];
    TRINE_CHECK(stream.position() == tensor.offset, (tensor.name + " starts elsewhere").c_str());
    const int64_t end = tensor.offset + tensor.bytes;
    const ByteSink sink = [&](std::span<const std::byte> bytes) {
      TRINE_CHECK(std::ssize(bytes) <= end - stream.position(),
                  (tensor.name + " has more bytes").c_str());
      return stream.Write(bytes);
    };
    TRINE_RETURN_IF_ERROR(produce(i, sink));
    TRINE_CHECK(stream.position() == end, (tensor.name + " has fewer bytes").c_str());
    TRINE_RETURN_IF_ERROR(stream.Pad());
  }
  return {};
}

}  // namespace

Status LayOutGguf(const Metadata& metadata, std::vector<TensorInfo>& tensors) {
  TRINE_ASSIGN(const int64_t alignment, metadata.IntOr("general.alignment", kAlignment));
  if (alignment != kAlignment) {
    return BadInput("'general.alignment' is " + std::to_string(alignment) + "; " +
                    std::to_string(kAlignment) + " is written");
  }
  std::unordered_set<std::string_view> names;
  for (const TensorInfo& tensor : tensors) {
    TRINE_RETURN_IF_ERROR(CheckTensor(tensor));
    if (!names.insert(tensor.name).second) {
      return BadInput("tensor " + Quote(tensor.name) + " occurs twice");
    }
  }
  int64_t at = AlignUp(std::ssize(MakeHeader(metadata, tensors, /*data=*/0)), kAlignment);
  for (TensorInfo& tensor : tensors) {
    int64_t rows = 1;
    for (size_t d = 1; d < tensor.shape.size(); ++d) rows *= tensor.shape[d];
    tensor.bytes = rows * RowBytes(tensor.type, tensor.cols());
    tensor.offset = at;
    at = AlignUp(at + tensor.bytes, kAlignment);
  }
  return {};
}

Status WriteGguf(const std::string& path, const Metadata& metadata, std::vector<TensorInfo> tensors,
                 const TensorProducer& produce) {
  if (const Status laid = LayOutGguf(metadata, tensors); !laid.ok()) {
    return {laid.code(), path + ": " + laid.message()};
  }
  TRINE_ASSIGN(OutputFile file, OutputFile::Create(path));  // frees what a killed process left
  if (!tensors.empty()) {
    TRINE_RETURN_IF_ERROR(
        CheckSpace(path, AlignUp(tensors.back().offset + tensors.back().bytes, kAlignment)));
  }
  Stream stream(file);
  const int64_t data = tensors.empty() ? 0 : tensors.front().offset;
  const std::string header = MakeHeader(metadata, tensors, data);
  TRINE_RETURN_IF_ERROR(stream.Write(std::as_bytes(std::span(header))));
  TRINE_RETURN_IF_ERROR(stream.Pad());
  TRINE_RETURN_IF_ERROR(WriteTensors(tensors, produce, stream));
  return file.Commit();
}

}  // namespace trine
