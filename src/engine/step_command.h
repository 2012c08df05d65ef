// StepCommand: what rank 0 tells every rank to do next, as one flat message, and RowResult: what
// the ranks answer. Rank 0 decides, all ranks execute.
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
  // Of its tokens, the last ones, which may prove wrong; never all. Neither the slot's state nor a
  // snapshot of it has them in it.
  int32_t drafts = 0;
  int32_t accepted = 0;  // drafts of the slot's last step that proved right; 0 if it is restored
};

// A token whose logits are wanted, and what of them.
struct LogitRow {
  int32_t row = 0;      // index into the step's tokens
  int32_t changes = 0;  // entries of `changes` that are this row's
  CandidateSpec spec;   // its own row and changes are unset
  // Filters that are to cut the candidates: if they would keep them all, every token of the
  // vocabulary is wanted instead. 1 and 0: the candidates suffice.
  float top_p = 1;
  float min_p = 0;
  // Of the logits as the model gave them: the likeliest tokens, this many, and the log-sum-exp; -1:
  // neither. target: a token whose logit is wanted too; -1: none.
  int32_t logprobs = -1;
  int32_t target = -1;
};

// What a step found for a LogitRow.
struct RowResult {
  std::span<const Candidate> candidates;  // of the whole vocabulary, best first
  bool fault = false;  // it, or a token before it in its sequence, met a value out of range; a
                       // draft that proved wrong is in its sequence no longer
  LogSum sum{};        // of the changed logits, if its spec wanted it
  // If it wanted logprobs:
  std::span<const Candidate> likeliest{};  // best first
  Candidate target{};
  LogSum logit_sum{};
};

struct StepCommand {
  std::vector<SequenceStep> sequences;
  std::vector<int32_t> tokens;       // of all sequences, in order
  std::vector<int32_t> new_pages;    // of all sequences, in order
  std::vector<LogitRow> rows;        // ascending by row
  std::vector<LogitChange> changes;  // of all rows, in order
  bool gather_logits = false;        // rank 0 wants the raw logits of all rows too

  void Clear() {
    sequences.clear();
    tokens.clear();
    new_pages.clear();
    rows.clear();
    changes.clear();
    gather_logits = false;
  }
  bool stop() const { return sequences.empty(); }  // the end of the job
};

// More than a decode step of a few hundred sequences takes.
inline constexpr size_t kMessageBytes = 64 << 10;

void Encode(const StepCommand& command, Bytes& message);
void Decode(const Bytes& message, StepCommand& command);

}  // namespace trine
