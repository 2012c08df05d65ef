// libFuzzer target: any bytes as a GGUF file, through the reader, the tokenizer and the plan of two
// ranks. Nothing may crash, leak or allocate beyond what the bytes can hold, and every refusal is
// one line. Behind an even number of bytes lies a hole, so that an input need not hold its weights.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "src/models/model.h"
#include "src/text/tokenizer.h"
#include "src/weights/weight_store.h"
#include "tests/fuzz/refusal.h"

namespace {

constexpr off_t kHole = off_t{1} << 24;

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
