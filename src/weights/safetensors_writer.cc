#include "src/weights/safetensors_writer.h"

#include <nlohmann/json.hpp>

namespace trine {
namespace {

// Place of a type among those of a file.
int Rank(DType type) {
  return type == DType::kF32 ? 0 : type == DType::kBF16 ? 1 : 2;
}

// Length and text of the header, padded so that data begins at a multiple of 8.
std::string MakeHeader(const std::vector<TensorInfo>& tensors) {
  nlohmann::ordered_json header;
  header["__metadata__"]["format"] = "pt";
  int64_t at = 0;
  for (const TensorInfo& tensor : tensors) {
    nlohmann::ordered_json& entry = header[tensor.name];
    entry["dtype"] = Info(tensor.type).name;
    entry["shape"] = std::vector(tensor.shape.rbegin(), tensor.shape.rend());
    entry["data_offsets"] = {at, at + tensor.bytes};
    at += tensor.bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

}  // namespace

bool SafetensorsBefore(const TensorInfo& a, const TensorInfo& b) {
  return Rank(a.type) != Rank(b.type) ? Rank(a.type) < Rank(b.type) : a.name < b.name;
}

int64_t SafetensorsBytes(const std::vector<TensorInfo>& tensors) {
  int64_t bytes = std::ssize(MakeHeader(tensors));
  for (const TensorInfo& tensor : tensors) bytes += tensor.bytes;
  return bytes;
}

Status WriteSafetensors(const std::string& path, const std::vector<TensorInfo>& tensors,
                        const TensorProducer& produce) {
  TRINE_ASSIGN(OutputFile file, OutputFile::Create(path));
  const std::string header = MakeHeader(tensors);
  TRINE_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(header))));
  for (size_t i = 0; i < tensors.size(); ++i) {
    int64_t left = tensors[i].bytes;
    TRINE_RETURN_IF_ERROR(produce(i, [&](std::span<const std::byte> bytes) {
      left -= std::ssize(bytes);
      TRINE_CHECK(left >= 0, (tensors[i].name + " has more bytes").c_str());
      return file.Write(bytes);
    }));
    TRINE_CHECK(left == 0, (tensors[i].name + " has fewer bytes").c_str());
  }
  return file.Commit();
}

}  // namespace trine
