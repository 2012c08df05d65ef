// libFuzzer target: any bytes as a GGUF file, through the reader, the tokenizer and the plan of two
// ranks. Nothing may crash, leak or allocate beyond what the bytes can hold, and every refusal is
// one line. Behind an even number of bytes lies a hole, so that an input need not hold its weights.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "src/models/model.h"
#include "src/text/tokenizer.h"
#include "src/weights/weight_store.h"

namespace {

constexpr off_t kHole = off_t{1} << 24;

// The message is of printable characters and begins with the path, if it is of the file.
template <typename T>
void CheckRefusal(const trine::Result<T>& result, const std::string& path) {
  if (result.ok()) return;
  const std::string& message = result.status().message();
  const bool printable = std::none_of(message.begin(), message.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
  });
  if (message.empty() || !printable || !message.starts_with(path)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int memory = memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(memory);
  const auto bytes = static_cast<off_t>(size);
  if (ftruncate(memory, 0) != 0 || pwrite(memory, data, size, 0) != bytes ||
      ftruncate(memory, size % 2 == 0 ? bytes + kHole : bytes) != 0) {
    return 0;
  }
  const auto store = trine::OpenWeights(path);
  CheckRefusal(store, path);
  if (!store.ok()) return 0;
  CheckRefusal(trine::Tokenizer::FromMetadata((*store)->metadata()), "");
  static std::string error;
  static const auto dry = trine::MakeCpuBackend({.dry = true}, &error);
  CheckRefusal(trine::PlanModel(**store, 2, {}, *dry), path);
  return 0;
}
