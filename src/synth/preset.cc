#include "src/synth/preset.h"

#include <algorithm>
#include <iterator>

#include "src/core/quote.h"

namespace trine {
namespace {

// clang-format off
constexpr Preset kPresets[] = {
    {"ternary-bonsai-2-27b", "qwen35", DType::kPQ2_0, 64, 5120, 17408, 24, 4, 256, 248320, 262144, 1e7,
     /*tied=*/false, /*rotated=*/true},
    {"ternary-bonsai-27b", "qwen35", DType::kPQ2_0, 64, 5120, 17408, 24, 4, 256, 248320, 262144, 1e7,
     /*tied=*/false, /*rotated=*/false, /*same_gates=*/true},
    {"ternary-bonsai-8b", "qwen3", DType::kPQ2_0, 36, 4096, 12288, 32, 8, 128, 151936, 65536, 1e6,
     /*tied=*/false, /*rotated=*/false, /*same_gates=*/false, /*yarn=*/true},
    {"ternary-bonsai-4b", "qwen3", DType::kPQ2_0, 36, 2560, 9728, 32, 8, 128, 151936, 32768, 1e6,
     /*tied=*/true},
    {"ternary-bonsai-1.7b", "qwen3", DType::kPQ2_0, 28, 2048, 6144, 16, 8, 128, 151936, 32768, 1e6,
     /*tied=*/true},
    {"qwen3.8-27b-f16", "qwen35", DType::kF16, 64, 5120, 17408, 24, 4, 256, 248320, 262144, 1e7},
};
// clang-format on

// K-quants have no writer.
constexpr DType kTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16,  DType::kQ8_0,
                            DType::kQ4_0, DType::kQ4_1, DType::kTQ1_0, DType::kTQ2_0,
                            DType::kQ1_0, DType::kQ2_0, DType::kPQ2_0, DType::kPTQ1_0};

std::string LowerName(DType type) {
  std::string name = Info(type).name;
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return name;
}

}  // namespace

std::string PresetNames() {
  std::string list;
  for (const Preset& preset : kPresets) {
    list += (list.empty() ? "" : ", ") + std::string(preset.name);
  }
  return list;
}

Result<const Preset*> FindPreset(const std::string& name) {
  const auto* found = std::find_if(std::begin(kPresets), std::end(kPresets),
                                   [&](const Preset& preset) { return name == preset.name; });
  if (found != std::end(kPresets)) return found;
  return Status(Code::kUsage, "--preset is " + Quote(name) + "; possible are " + PresetNames());
}

std::string SynthTypeNames() {
  std::string list;
  for (const DType type : kTypes) list += (list.empty() ? "" : ", ") + LowerName(type);
  return list;
}

Result<DType> FindSynthType(const std::string& name, DType fallback) {
  if (name.empty()) return fallback;
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [&](DType type) { return name == LowerName(type); });
  if (found != std::end(kTypes)) return *found;
  return Status(Code::kUsage, "--type is " + Quote(name) + "; possible are " + SynthTypeNames());
}

}  // namespace trine
