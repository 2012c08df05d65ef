// The scheduler: which tokens of which requests make the next step. A state machine without clock,
// device or message; rank 0 owns it.
//
// Continuous batching (Yu et al. 2022): requests join and leave between any two steps. Every
// sequence that decodes has its token in every step; what is left of the step's tokens is shared
// evenly among those that still read their prompts. Waiting clients take turns. Pages are taken as
// they are needed; where none is left, the sequence that was admitted last gives up its own and is
// computed anew later (Kwon et al. 2023), which gives the same bits. From its first
// sampled token on what a sequence computed is kept for others that begin with the same tokens, or
// for itself, as long as there is room (prefix_cache.h); one that begins like a prompt that is
// being read waits for that.
//
// A sequence that decodes may have guesses of its next tokens in a step (prompt_lookup.h). Noise is
// keyed by position, so a token that is sampled behind right guesses is the token that would have
// been sampled without any: guesses change the time, never the text.
//
// Decode steps do not allocate, unless log-probabilities are wanted.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "src/core/result.h"
#include "src/engine/prefix_cache.h"
#include "src/engine/prompt_lookup.h"
#include "src/engine/sampler.h"
#include "src/engine/step_command.h"

namespace trine {

struct Request {
  std::vector<int32_t> prompt;  // at least one token
  int32_t max_tokens = -1;      // to generate, from 1 on; -1: until the context is full
  SamplingParams sampling;
  std::vector<int32_t> stop;  // sorted ids that end the text, and are not part of it
  int64_t client = 0;         // whose turn it is among those who wait
  int64_t deadline = std::numeric_limits<int64_t>::max();  // of Expire, in its unit
};

enum class FinishReason { kNone, kStop, kLength, kFault, kCancelled, kDeadline };

// What a step, a cancellation or a deadline did for one request.
struct TokenEvent {
  int64_t request = 0;
  int32_t token = -1;  // sampled, a stop token too; -1: none
  int32_t row = -1;    // of the step's logits, that it was sampled from or that score the prompt's
  FinishReason finish = FinishReason::kNone;
  // If asked for: of the token, or, without one, of the prompt's next token: events of their own,
  // which come in order, from the prompt's second token on, as the prompt is computed.
  TokenLogprobs logprobs{};
};

struct SchedulerLimits {
  int64_t context = 0;      // tokens of one sequence
  int64_t made_for = 0;     // tokens that the model can do at most
  int64_t sequences = 0;    // at once
  int64_t drafts = 0;       // guessed tokens of a sequence in a step, at most
  int64_t step_tokens = 0;  // per step, over all sequences; no fewer than each one's and its drafts
  int64_t pages = 0;        // of the KV cache
  int64_t logit_rows = 0;   // per step, over all sequences; no fewer than `sequences`
  int64_t vocab = 0;
  bool recurrent = false;  // the model has a state besides the pages
  int64_t snapshots = 0;   // of that state, for the prefix cache
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);

  // The request's number, or why it can never run, with both numbers.
  Result<int64_t> Submit(Request request);

  // Ends a request at any moment; one that has ended already is left alone. If its tokens are in
  // the step that runs, it ends with that step.
  void Cancel(int64_t request) { End(request, FinishReason::kCancelled); }
  // Ends, in the same way, all requests whose deadline is before `now`.
  void Expire(int64_t now);

  // Replaces `events` by what happened since the last call, in order; its memory is used again.
  void TakeEvents(std::vector<TokenEvent>& events);

  // No request is left. One that is not idle has a next step.
  bool idle() const { return waiting_.empty() && running_.empty(); }

  // The most tokens of the steps that follow; no more than the limits say.
  void LimitStep(int64_t tokens) { limits_.step_tokens = tokens; }

  // The next step; not idle. Valid until the next call. Every call is followed by one Complete.
  StepCommand& Next();

  // The outcome of that step, for each logit row.
  void Complete(std::span<const RowResult> rows);

  // What is not in use now, pages that are kept for others included; all of it when idle.
  int64_t free_pages() const { return cache_.available(); }
  int64_t free_slots() const { return std::ssize(free_slots_); }
  int64_t preemptions() const { return preemptions_; }
  int64_t cached_tokens() const { return cached_tokens_; }  // that did not have to be computed
  int64_t guessed_tokens() const { return guessed_tokens_; }
  int64_t accepted_tokens() const { return accepted_tokens_; }  // of those, right ones
  int32_t slot(int64_t request) const;                          // -1: it does not run

 private:
  struct Sequence {
    int64_t id = 0;
    Request request;
    // Prompt, then what was sampled; while a step runs, then what is guessed.
    std::vector<int32_t> tokens;
    int64_t limit = 0;     // tokens at which it must end
    int64_t computed = 0;  // tokens whose keys and values are in the cache, guesses left out
    int64_t scored = 0;    // prompt tokens whose log-probability is known, or not wanted
    int32_t slot = -1;
    PrefixCache::Holding held;
    int64_t told = 0;      // of its pages, those that the ranks know
    int32_t restore = -1;  // the snapshot that it begins with
    // (pages, snapshot of the state after them) that are not the cache's yet.
    std::vector<std::pair<int64_t, int32_t>> saved;
    int64_t last_decoded = 0;  // pages at whose end the last snapshot while decoding was made
    GuessCount guess_count;
    // Logit rows in the step that runs, of its prompt and then those that tokens are sampled from.
    int64_t prompt_rows = 0, rows = 0;
    int64_t guessed = 0;   // tokens in the step that runs
    int64_t accepted = 0;  // of those of the last step, unless the state has moved on since
    bool in_step = false;
    FinishReason ended = FinishReason::kNone;  // while in the step that runs

    int64_t pending() const { return std::ssize(tokens) - computed; }
  };

  void Admit();
  std::deque<Sequence>* NextClient();
  static std::span<const int32_t> MayBeCached(const Sequence& sequence);
  bool BeginsLikeOneThatReads(const Sequence& sequence);
  int64_t PrefillShare() const;
  int64_t Decoding() const;
  int64_t UpToSnapshot(const Sequence& sequence, int64_t count) const;
  int64_t FitRows(size_t nth, int64_t count) const;
  int64_t FreeRows(size_t nth) const;
  int64_t HoldPages(size_t nth, int64_t count);
  void PreemptLast();
  void AddSequence(Sequence& sequence, int64_t count, int64_t most_guesses);
  int64_t Guess(Sequence& sequence, int64_t most);
  int32_t SaveState(Sequence& sequence);
  void AddPromptRows(Sequence& sequence);
  void AddLogitRow(Sequence& sequence, int64_t position);
  TokenEvent Sample(const Sequence& sequence, int64_t position, const RowResult& row) const;
  TokenEvent Score(const Sequence& sequence, const RowResult& row) const;
  void Advance(Sequence& sequence, std::span<const RowResult> rows, int64_t first_row);
  void Keep(Sequence& sequence);
  void End(int64_t request, FinishReason why);
  void GiveBack(Sequence& sequence);

  SchedulerLimits limits_;
  PrefixCache cache_;
  std::vector<int32_t> free_slots_;
  int64_t next_id_ = 0, last_client_ = -1;
  int64_t preemptions_ = 0, cached_tokens_ = 0, guessed_tokens_ = 0, accepted_tokens_ = 0;
  // By client; none is empty. Those that gave up their pages stand in front.
  std::map<int64_t, std::deque<Sequence>> waiting_;
  std::vector<Sequence> running_;  // in order of admission
  StepCommand command_;
  std::vector<TokenEvent> events_;
};

}  // namespace trine
