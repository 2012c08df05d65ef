// StepBatch: the tokens of one step, of several sequences at once, prefill and decode mixed. And
// SequenceMemory: where those sequences' past lies. Plain views, filled by the engine.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/backend.h"

namespace trine {

struct StepBatch {
  std::span<const int32_t> tokens;      // [T]
  TokenPlaces places;                   // position, sequence, KV pages and state of each token
  std::span<const int32_t> logit_rows;  // [R] indices into tokens, ascending

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
};

struct SequenceMemory {
  std::span<const KvPages> kv;          // [attention layers] this rank's heads
  std::span<const DeltaStates> states;  // [recurrent layers] this rank's heads
  std::span<int32_t> row_faults;        // [T] > 0: this row met a value that is out of range
};

}  // namespace trine
