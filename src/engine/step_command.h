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
  int32_t first_position = 0;  // of its tokens in this step
  int32_t tokens = 0;
  int32_t new_pages = 0;  // KV pages appended to the slot before the step
  int32_t begins = 0;     // 1: another sequence has the slot from now on, and no pages yet
  // Snapshots of the recurrent state: one that the slot's state is set to before the step, one that
  // is set to the slot's state after it. -1: none.
  int32_t restore = -1;
  int32_t save = -1;
  // The last of the tokens are guesses: so many of them. And of the guesses of this sequence's last
  // step so many were right that this step does not repeat them. The recurrent state is that after
  // the last token that is no guess, also when it is saved.
  int32_t drafts = 0;
  int32_t accepted = 0;
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

  void Clear() {
    sequences.clear();
    tokens.clear();
    new_pages.clear();
    rows.clear();
    windows.clear();
    gather_logits = false;
  }
  bool stop() const { return sequences.empty(); }  // the end of the job
};

// More than a decode step of a few hundred sequences takes.
inline constexpr size_t kMessageBytes = 64 << 10;

void Encode(const StepCommand& command, Bytes& message);
void Decode(const Bytes& message, StepCommand& command);

}  // namespace trine
