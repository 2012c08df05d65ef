#include "comm/progress.h"

#include "comm/fault.h"

namespace trine {

Progress& OwnProgress() {
  static Progress progress;
  return progress;
}

const char* PhaseName(Phase phase) {
  static constexpr const char* kNames[kPhases] = {"start-up", "fabric", "load",    "prefill",
                                                  "decode",   "idle",   "shutdown"};
  return kNames[static_cast<size_t>(phase)];
}

std::string PlaceText(Phase phase, int64_t step) {
  const bool steps = phase == Phase::kPrefill || phase == Phase::kDecode;
  return PhaseName(phase) + (steps ? ", step " + std::to_string(step) : "");
}

void Progress::Enter(Phase phase, int64_t step) {
  phase_.store(phase, std::memory_order_relaxed);
  step_.store(step, std::memory_order_relaxed);
  Move();
  OwnFault().At(phase, step);
}

Standing Progress::standing() const {
  Standing standing;
  standing.phase = phase_.load(std::memory_order_relaxed);
  standing.step = step_.load(std::memory_order_relaxed);
  standing.waits_for = waits_for_.load(std::memory_order_relaxed);
  standing.still = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::duration(Now() - moved_.load(std::memory_order_relaxed)));
  return standing;
}

}  // namespace trine
