// StepCommand: what rank 0 tells every rank to do next, as one flat message. Rank 0 decides, all
// ranks execute: nothing else travels down.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/control.h"
#include "kernels/backend.h"

namespace trine {

// Some next tokens of one sequence.
struct SequenceStep {
  int32_t slot = 0;            // which sequence; small numbers, reused
  int32_t first_position = 0;  // of its tokens in this step; 0 starts the slot's sequence anew
  int32_t tokens = 0;
  int32_t new_pages = 0;  // KV pages appended to the slot before the step
};

// A token whose logits are wanted, and how its candidates are to be chosen.
struct LogitRow {
  int32_t row = 0;     // index into the step's tokens
  int32_t window = 0;  // entries of `windows` that are this row's
  CandidateSpec spec;  // its own window is unset
};

struct StepCommand {
  std::vector<SequenceStep> sequences;
  std::vector<int32_t> tokens;      // of all sequences, in order
  std::vector<int32_t> new_pages;   // of all sequences, in order
  std::vector<LogitRow> rows;       // ascending by row
  std::vector<TokenCount> windows;  // of all rows, in order
  bool gather_logits = false;       // rank 0 wants the raw logits of all rows too

  bool stop() const { return sequences.empty(); }  // the end of the job
};

void Encode(const StepCommand& command, Bytes& message);
void Decode(const Bytes& message, StepCommand& command);

}  // namespace trine
