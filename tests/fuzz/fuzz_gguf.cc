// libFuzzer target: any bytes as a GGUF file, through the reader, the tokenizer and the plan of two
// ranks. Nothing may crash, leak or allocate beyond what the bytes can hold.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "src/models/model.h"
#include "src/text/tokenizer.h"
#include "src/weights/weight_store.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int memory = memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(memory);
  if (ftruncate(memory, 0) != 0 || pwrite(memory, data, size, 0) != static_cast<ssize_t>(size)) {
    return 0;
  }
  const auto store = trine::OpenWeights(path);
  if (!store.ok()) return 0;
  (void)trine::Tokenizer::FromMetadata((*store)->metadata());
  static std::string error;
  static const auto dry = trine::MakeCpuBackend({.dry = true}, &error);
  (void)trine::PlanModel(**store, 2, {}, *dry);
  return 0;
}
