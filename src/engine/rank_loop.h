// The rank loop: rank 0 broadcasts a step, every rank executes it. RankExecutor is the same object
// on all ranks; only rank 0 looks at the results.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "comm/control.h"
#include "comm/sealed_gather.h"
#include "kernels/backend.h"
#include "src/engine/candidate_exchange.h"
#include "src/engine/kv_cache.h"
#include "src/engine/recurrent_state.h"
#include "src/engine/step_command.h"
#include "src/models/model.h"

namespace trine {

struct ExecutorLimits {
  StepLimits step;
  int64_t sequences = 0;       // slots
  int64_t drafts = 0;          // of a sequence in a step, at most
  int64_t pages = 0;           // of the KV cache
  int64_t sequence_pages = 0;  // of one sequence, at most
  int64_t snapshots = 0;       // of the recurrent state
};

// What rank 0 gets from a step; valid until the next one.
struct StepResult {
  std::vector<RowResult> rows;
  std::span<const float> logits;  // [R, vocabulary], if the command gathers them
};

class RankExecutor {
 public:
  // vocab_shards: every rank's rows of the vocabulary; allowed [vocab]: 0 marks padding that is
  // never drawn. All references must outlive this.
  RankExecutor(Model& model, RankContext& context, std::vector<Interval> vocab_shards,
               const std::vector<uint8_t>& allowed, const ExecutorLimits& limits);

  // Collective: every rank with the same command. The result is complete on rank 0 only. Corrupted
  // transport (a sum that cannot be right) ends the job.
  const StepResult& Execute(const StepCommand& command);

  int64_t kv_bytes() const { return cache_.bytes(); }
  int64_t state_bytes() const { return states_.bytes(); }

 private:
  struct Slot {
    std::vector<int32_t> pages;
    bool fault = false;  // of a token that is no draft
    // Of its last step: drafts, and those of them before the first that met a value out of range.
    int32_t drafts = 0, sound_drafts = 0;
  };

  void EnterStep(const StepCommand& command);
  void EndIfBroken(int64_t first_collective);
  void BuildBatch(const StepCommand& command);
  void RestoreStates(const StepCommand& command);
  void SaveStates(const StepCommand& command);
  void NoteFaults(const StepCommand& command);
  void GatherLogits(F32View logits);

  int64_t steps_ = 0;  // executed so far
  Model& model_;
  RankContext& context_;
  const std::vector<Interval> vocab_shards_;
  const int64_t most_drafts_;     // of a sequence in a step
  const int64_t first_snapshot_;  // among the state slots: after those of sequences
  KvCache cache_;
  RecurrentState states_;
  SealedGather gather_;
  CandidateExchange exchange_;
  Buffer logits_;  // f32 [R, shard]

  std::vector<Slot> slots_;
  std::vector<int32_t> positions_, sequences_, page_indptr_, pages_, state_slots_;
  std::vector<int32_t> drafts_, accepted_;  // by sequence of the step
  std::vector<int32_t> logit_rows_, row_faults_;
  std::vector<int64_t> counts_;  // bytes by rank, for the gather
  std::vector<float> all_logits_, logit_matrix_;
  StepResult result_;
};

// The life of a rank other than 0: execute what rank 0 broadcasts until it says stop.
void RunWorker(ControlChannel& control, RankExecutor& executor);

// Rank 0's side of a step, and of the end. `message` is scratch, kept from step to
// step.
const StepResult& BroadcastAndExecute(ControlChannel& control, RankExecutor& executor,
                                      const StepCommand& command, Bytes& message);
void BroadcastStop(ControlChannel& control);

}  // namespace trine
