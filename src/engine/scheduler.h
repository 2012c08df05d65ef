// The scheduler: which tokens of which requests make the next step. A state machine without clock,
// device or message; rank 0 owns it. For now: first come, first served; a request is admitted when
// a slot and all the pages it can ever need are free, and prefill is cut to the step's token
// budget.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "src/engine/kv_cache.h"
#include "src/engine/sampler.h"
#include "src/engine/step_command.h"

namespace trine {

struct Request {
  std::vector<int32_t> prompt;  // at least one token
  int32_t max_tokens = -1;      // to generate; -1: until the context is full
  SamplingParams sampling;
  std::vector<int32_t> stop;  // sorted ids that end the text, and are not part of it
};

enum class FinishReason { kNone, kStop, kLength, kFault };

// What a step did for one request.
struct TokenEvent {
  int64_t request = 0;
  int32_t token = -1;  // sampled; a stop token too
  FinishReason finish = FinishReason::kNone;
};

struct SchedulerLimits {
  int64_t context = 0;      // tokens of one sequence
  int64_t made_for = 0;     // tokens that the model can do at most
  int64_t sequences = 0;    // at once
  int64_t step_tokens = 0;  // per step, over all sequences
  int64_t pages = 0;        // of the KV cache
  int64_t vocab = 0;
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);

  // The request's number, or why it can never run, with both numbers.
  Result<int64_t> Submit(Request request);

  bool idle() const { return waiting_.empty() && running_.empty(); }

  // The most tokens of the steps that follow; no more than the limits say.
  void LimitStep(int64_t tokens) { limits_.step_tokens = tokens; }

  // The next step; not idle. Every call is followed by one Complete.
  StepCommand Next();

  // The outcome of that step: for each logit row its candidates (best first), or a fault of its
  // sequence's rows. Events in order of the rows.
  struct RowResult {
    std::span<const Candidate> candidates;
    bool fault = false;
  };
  std::vector<TokenEvent> Complete(std::span<const RowResult> rows);

 private:
  struct Sequence {
    int64_t id = 0;
    Request request;
    std::vector<int32_t> tokens;  // prompt, then what was sampled
    int64_t computed = 0;         // tokens whose keys and values are in the cache
    int64_t reserved = 0;         // pages still to be taken
    int32_t slot = 0;
    std::vector<int32_t> pages;
    int64_t limit = 0;  // tokens at which it must end
  };

  void Admit();
  void AddSequence(Sequence& sequence, int64_t count, StepCommand& command);
  void AddLogitRow(Sequence& sequence, StepCommand& command);
  TokenEvent Append(Sequence& sequence, const RowResult& row) const;

  SchedulerLimits limits_;
  PageAllocator pages_;
  int64_t reserved_pages_ = 0;  // promised to running sequences, not taken yet
  std::vector<int32_t> free_slots_;
  int64_t next_id_ = 0;
  std::deque<Sequence> waiting_;
  std::deque<Sequence> running_;  // in order of admission
  std::vector<int64_t> sampled_;  // ids of the sequences whose rows the last step wants
};

}  // namespace trine
