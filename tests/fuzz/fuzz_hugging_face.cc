// libFuzzer target: any bytes as a Hugging Face checkpoint: config.json up to the first zero byte,
// then model.safetensors; through the reader, the plan of two ranks and the plans of both
// conversions. Nothing may crash, leak or allocate beyond what the bytes can hold, and every refusal
// is one line. Behind the file lies a hole, so that an input need not hold its weights.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "src/convert/conversion.h"
#include "tests/fuzz/refusal.h"

namespace {

constexpr off_t kHole = off_t{1} << 22;

void Write(int file, const uint8_t* data, size_t size, off_t hole) {
  const auto bytes = static_cast<off_t>(size);
  if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != bytes ||
      ftruncate(file, bytes + hole) != 0) {
    std::abort();
  }
}

std::string MakeFolder() {
  std::string path = (std::filesystem::temp_directory_path() / "fuzz_hugging_face_XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) std::abort();
  return path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string path = MakeFolder();
  static const int config = open((path + "/config.json").c_str(), O_RDWR | O_CREAT, 0600);
  static const int weights = open((path + "/model.safetensors").c_str(), O_RDWR | O_CREAT, 0600);
  const uint8_t* end = data + size;
  const uint8_t* zero = std::find(data, end, 0);
  Write(config, data, static_cast<size_t>(zero - data), 0);
  if (zero != end) ++zero;
  Write(weights, zero, static_cast<size_t>(end - zero), kHole);
  const auto store = trine::OpenWeights(path);
  CheckRefusal(store, path);
  if (!store.ok()) return 0;
  static std::string error;
  static const auto dry = trine::MakeCpuBackend({.dry = true}, &error);
  CheckRefusal(trine::PlanModel(**store, 2, {}, *dry), path);
  for (const trine::Container target : {trine::Container::kGguf, trine::Container::kHuggingFace}) {
    const auto plan = trine::PlanConversion(**store, target, trine::DType::kF16);
    CheckRefusal(plan, path);
    if (plan.ok()) CheckRefusal(WriteHfConfig(plan->config, plan->rope_factors), "");
  }
  return 0;
}
