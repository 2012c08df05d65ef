#include "src/engine/scheduler.h"

#include <algorithm>

#include "src/core/check.h"

namespace trine {

Scheduler::Scheduler(const SchedulerLimits& limits)
    : limits_(limits), cache_(limits.pages, limits.snapshots, limits.recurrent) {
  for (int64_t slot = limits.sequences - 1; slot >= 0; --slot) {
    free_slots_.push_back(static_cast<int32_t>(slot));
  }
  running_.reserve(static_cast<size_t>(limits.sequences));
}

Result<int64_t> Scheduler::Submit(Request request) {
  TRINE_CHECK(!request.prompt.empty(), "a request has a prompt");
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (request.max_tokens < -1 || request.max_tokens == 0) {
    return BadInput("max_tokens is " + std::to_string(request.max_tokens) +
                    "; a number from 1 on, or -1 for as many as the context holds");
  }
  const int64_t wanted = request.max_tokens < 0 ? 1 : request.max_tokens;
  if (prompt + wanted > limits_.context) {
    return BadInput(
        "the prompt has " + std::to_string(prompt) + " tokens and " + std::to_string(wanted) +
        " are to follow, but the context holds " + std::to_string(limits_.context) +
        (limits_.context < limits_.made_for ? "; use a larger --ctx-size"
                                            : ", all that the model was made for; ask for less"));
  }
  TRINE_RETURN_IF_ERROR(CheckSampling(request.sampling, limits_.vocab));
  Sequence sequence;
  sequence.id = next_id_++;
  sequence.tokens = request.prompt;
  sequence.limit = request.max_tokens < 0 ? limits_.context : prompt + request.max_tokens;
  // Nothing precedes the first token.
  sequence.scored = request.sampling.prompt_logprobs < 0 ? prompt : 1;
  sequence.request = std::move(request);
  if (PagesFor(sequence.limit) > limits_.pages) {
    return BadInput("the request needs " + std::to_string(PagesFor(sequence.limit)) +
                    " KV pages of " + std::to_string(kPageTokens) + " tokens, the cache has " +
                    std::to_string(limits_.pages) + "; ask for fewer tokens");
  }
  const int64_t id = sequence.id;
  waiting_[sequence.request.client].push_back(std::move(sequence));
  return id;
}

// The client after the one that was served last, of those whose first request need not wait for
// what is being read.
std::deque<Scheduler::Sequence>* Scheduler::NextClient() {
  auto next = waiting_.upper_bound(last_client_);
  for (size_t i = 0; i < waiting_.size(); ++i, ++next) {
    if (next == waiting_.end()) next = waiting_.begin();
    if (!BeginsLikeOneThatReads(next->second.front())) return &next->second;
  }
  return nullptr;
}

// At least one token is to be computed: its logits are wanted. So are those before the tokens that
// are to be scored.
std::span<const int32_t> Scheduler::MayBeCached(const Sequence& sequence) {
  const bool all_scored = sequence.scored == std::ssize(sequence.request.prompt);
  const int64_t end = all_scored ? std::ssize(sequence.tokens) : sequence.scored;
  return std::span(sequence.tokens).first(static_cast<size_t>(end - 1));
}

// Whether more of it will be in the cache as soon as a prompt has been read that begins alike.
bool Scheduler::BeginsLikeOneThatReads(const Sequence& sequence) {
  if (limits_.recurrent && limits_.snapshots == 0) return false;
  const std::span<const int32_t> usable = MayBeCached(sequence);
  int64_t alike = 0;
  for (const Sequence& other : running_) {
    if (other.pending() <= 1) continue;
    const auto end =
        std::mismatch(usable.begin(), usable.end(), other.tokens.begin(), other.tokens.end());
    alike = std::max<int64_t>(alike, (end.first - usable.begin()) / kPageTokens * kPageTokens);
  }
  return alike > 0 && alike > cache_.Match(usable);
}

// Those that wait, as long as there are a slot and the pages of all that they have to compute now:
// one that is admitted makes progress before it can lose its pages.
void Scheduler::Admit() {
  int64_t promised = 0;
  for (const Sequence& sequence : running_) {
    promised += PagesFor(std::ssize(sequence.tokens)) - std::ssize(sequence.held.pages);
  }
  while (std::deque<Sequence>* client = free_slots_.empty() ? nullptr : NextClient()) {
    Sequence& first = client->front();
    promised += PagesFor(std::ssize(first.tokens));
    if (promised > cache_.available()) return;
    first.restore = cache_.Find(MayBeCached(first), first.held);
    first.computed = std::ssize(first.held.pages) * kPageTokens;
    promised -= std::ssize(first.held.pages);
    cached_tokens_ += first.computed;
    first.slot = free_slots_.back();
    free_slots_.pop_back();
    first.tokens.reserve(static_cast<size_t>(first.limit + limits_.drafts));
    first.held.pages.reserve(static_cast<size_t>(PagesFor(first.limit)));
    first.held.nodes.reserve(static_cast<size_t>(PagesFor(first.limit)));
    last_client_ = first.request.client;
    running_.push_back(std::move(first));
    client->pop_front();
    if (client->empty()) waiting_.erase(last_client_);
  }
}

int64_t Scheduler::Decoding() const {
  return std::ranges::count_if(running_, [](const Sequence& s) { return s.pending() == 1; });
}

// Tokens for each sequence that still reads its prompt: an even part of what those that decode
// leave, but no less than a page. 0: there is none.
int64_t Scheduler::PrefillShare() const {
  const int64_t decoding = Decoding(), reading = std::ssize(running_) - decoding;
  const int64_t left = limits_.step_tokens - decoding;
  return reading == 0 ? 0 : std::max<int64_t>((left + reading - 1) / reading, kPageTokens);
}

StepCommand& Scheduler::Next() {
  Admit();
  command_.Clear();
  const int64_t share = PrefillShare();
  int64_t decoding = Decoding();  // behind the sequence that is looked at
  int64_t budget = limits_.step_tokens;
  for (size_t i = 0; i < running_.size(); ++i) {
    const bool decodes = running_[i].pending() == 1;
    decoding -= decodes ? 1 : 0;
    const int64_t left = std::max<int64_t>(0, budget - decoding);  // by those behind
    const int64_t wanted =
        decodes ? std::min<int64_t>(1, budget) : std::min({running_[i].pending(), share, left});
    const int64_t held = HoldPages(i, wanted);
    const int64_t count = UpToSnapshot(running_[i], FitRows(i, held));
    if (count == 0) continue;
    // A step that reads prompts has no idle arithmetic for guesses.
    const int64_t guesses = share == 0 ? std::min(left - count, FreeRows(i) - 1) : 0;
    AddSequence(running_[i], count, guesses);
    budget -= count + running_[i].guessed;
  }
  TRINE_CHECK(!command_.sequences.empty(), "a scheduler that is not idle has a next step");
  return command_;
}

// How many of the next `count` tokens of the nth running sequence can have pages: those behind it
// give up theirs, the last first.
int64_t Scheduler::HoldPages(size_t nth, int64_t count) {
  const Sequence& sequence = running_[nth];
  for (;;) {
    const int64_t held = std::ssize(sequence.held.pages) + cache_.available();
    const int64_t fitting = held * kPageTokens - sequence.computed;
    if (count <= fitting || nth + 1 == running_.size()) return std::min(count, fitting);
    PreemptLast();
  }
}

void Scheduler::PreemptLast() {
  Sequence last = std::move(running_.back());
  running_.pop_back();
  GiveBack(last);
  waiting_[last.request.client].push_front(std::move(last));
  ++preemptions_;
}

// Of the next `count` tokens of a prompt, those up to the end of a page, if the state can be saved
// there: the last such end in reach.
int64_t Scheduler::UpToSnapshot(const Sequence& sequence, int64_t count) const {
  const int64_t end = sequence.computed + count, whole = end / kPageTokens * kPageTokens;
  if (limits_.snapshots == 0 || whole <= sequence.computed) return count;
  // What the whole prompt leaves over is computed in a step of its own.
  return whole - sequence.computed;
}

// Logit rows that the step can still have, with one for each sequence behind the nth.
int64_t Scheduler::FreeRows(size_t nth) const {
  return limits_.logit_rows - std::ssize(command_.rows) -
         (std::ssize(running_) - static_cast<int64_t>(nth) - 1);
}

// Of the next `count` tokens of the nth running sequence, those whose logit rows fit.
int64_t Scheduler::FitRows(size_t nth, int64_t count) const {
  const Sequence& sequence = running_[nth];
  if (sequence.scored == std::ssize(sequence.request.prompt)) return count;
  const int64_t first = std::max(sequence.computed, sequence.scored - 1);  // token that has a row
  return std::min(count, first - sequence.computed + FreeRows(nth));
}

void Scheduler::GiveBack(Sequence& sequence) {
  for (const auto& [pages, snapshot] : sequence.saved) cache_.ReturnSnapshot(snapshot);
  sequence.saved.clear();
  if (sequence.restore >= 0) cache_.Restored(sequence.held);
  cache_.Release(sequence.held);
  sequence.told = sequence.last_decoded = sequence.accepted = 0;
  sequence.restore = -1;
  free_slots_.push_back(sequence.slot);
  sequence.slot = -1;
}

void Scheduler::AddSequence(Sequence& sequence, int64_t count, int64_t most_guesses) {
  SequenceStep step;
  step.slot = sequence.slot;
  step.first_position = static_cast<int32_t>(sequence.computed);
  step.begins = sequence.told == 0 ? 1 : 0;
  step.restore = std::exchange(sequence.restore, -1);
  if (step.restore >= 0) cache_.Restored(sequence.held);
  std::vector<int32_t>& pages = sequence.held.pages;
  while (std::ssize(pages) < PagesFor(sequence.computed + count)) pages.push_back(cache_.Take());
  command_.new_pages.insert(command_.new_pages.end(), pages.begin() + sequence.told, pages.end());
  step.new_pages = static_cast<int32_t>(std::ssize(pages) - sequence.told);
  sequence.told = std::ssize(pages);
  sequence.computed += count;
  sequence.in_step = true;
  const bool sampled = sequence.pending() == 0;
  sequence.guessed = sampled ? Guess(sequence, most_guesses) : 0;
  sequence.rows = sampled ? 1 + sequence.guessed : 0;
  step.tokens = static_cast<int32_t>(count + sequence.guessed);
  step.drafts = static_cast<int32_t>(sequence.guessed);
  step.accepted = static_cast<int32_t>(std::exchange(sequence.accepted, 0));
  step.save = SaveState(sequence);
  command_.sequences.push_back(step);
  const auto first = sequence.tokens.begin() + step.first_position;
  command_.tokens.insert(command_.tokens.end(), first, first + step.tokens);
  AddPromptRows(sequence);
  for (int64_t i = 0; i < sequence.rows; ++i) AddLogitRow(sequence, sequence.computed + i);
}

// Guesses stay in the page of the last certain token, and leave out its last place: so they take no
// pages, and the state can be saved at the end of every page.
int64_t Scheduler::Guess(Sequence& sequence, int64_t most) {
  const int64_t in_page = sequence.computed % kPageTokens;
  const int64_t room = in_page == 0 ? 0 : kPageTokens - 1 - in_page;
  const int64_t useful = sequence.limit - std::ssize(sequence.tokens) - 1;
  const int64_t possible = std::min({most, room, useful, limits_.drafts});
  const int64_t wanted = possible <= 0 ? 0 : sequence.guess_count.Next(possible);
  const size_t repeat = wanted == 0 ? 0 : FindRepeat(sequence.tokens);
  if (repeat == 0) return 0;
  // A place close to the end repeats what is guessed.
  for (size_t i = repeat; i < repeat + static_cast<size_t>(wanted); ++i) {
    sequence.tokens.push_back(sequence.tokens[i]);
  }
  guessed_tokens_ += wanted;
  return wanted;
}

// The snapshot that the state after this step goes to: at the end of every page that a step ends
// with. Where none is free, a prompt's later end of a page is worth more than its earlier one, and
// than what others left only if it has none yet.
int32_t Scheduler::SaveState(Sequence& sequence) {
  if (limits_.snapshots == 0 || sequence.computed % kPageTokens != 0) return -1;
  const int64_t pages = sequence.computed / kPageTokens;
  if (!cache_.has_free_snapshot() && !sequence.saved.empty()) {
    sequence.saved.back().first = pages;
    return sequence.saved.back().second;
  }
  const int32_t snapshot = cache_.TakeSnapshot();
  if (snapshot >= 0) sequence.saved.emplace_back(pages, snapshot);
  return snapshot;
}

// After a good row: what has been computed so far is true, and may serve others.
void Scheduler::Keep(Sequence& sequence) {
  cache_.Add(std::span(sequence.tokens).first(static_cast<size_t>(sequence.computed)),
             sequence.held);
  for (const auto& [pages, snapshot] : sequence.saved) {
    const bool decoded = pages * kPageTokens >= std::ssize(sequence.request.prompt);
    // Of those that are made while decoding the last one is enough.
    if (decoded && sequence.last_decoded > 0) cache_.Detach(sequence.held, sequence.last_decoded);
    const bool attached = cache_.Attach(sequence.held, pages, snapshot);
    if (decoded) sequence.last_decoded = attached ? pages : 0;
  }
  sequence.saved.clear();
}

// Rows for the prompt tokens that follow those just added.
void Scheduler::AddPromptRows(Sequence& sequence) {
  const int64_t end = std::min(sequence.computed, std::ssize(sequence.request.prompt) - 1);
  for (; sequence.scored <= end; ++sequence.scored) {
    LogitRow row =
        MakePromptRow(sequence.request.sampling,
                      sequence.tokens[static_cast<size_t>(sequence.scored)], limits_.vocab);
    const int64_t from_end = sequence.computed + sequence.guessed - (sequence.scored - 1);
    row.row = static_cast<int32_t>(std::ssize(command_.tokens) - from_end);
    command_.rows.push_back(row);
    ++sequence.prompt_rows;
  }
}

// The row that a token at `position` is sampled from, behind all of the sequence's before it.
void Scheduler::AddLogitRow(Sequence& sequence, int64_t position) {
  const Request& request = sequence.request;
  const TextSoFar text{std::span(sequence.tokens).first(static_cast<size_t>(position)),
                       std::ssize(request.prompt), request.stop};
  LogitRow row = MakeLogitRow(request.sampling, text, limits_.vocab, command_.changes);
  row.row = static_cast<int32_t>(std::ssize(command_.tokens) - sequence.rows + position -
                                 sequence.computed);
  command_.rows.push_back(row);
}

TokenEvent Scheduler::Score(const Sequence& sequence, const RowResult& row) const {
  if (row.fault) return {sequence.id, -1, -1, FinishReason::kFault};
  return {sequence.id, -1, -1, FinishReason::kNone, MakeLogprobs(row, row.target)};
}

TokenEvent Scheduler::Sample(const Sequence& sequence, int64_t position,
                             const RowResult& row) const {
  TokenEvent event;
  event.request = sequence.id;
  event.finish = FinishReason::kFault;
  if (row.fault) return event;
  const SamplingParams& sampling = sequence.request.sampling;
  const Candidate picked = PickCandidate(row, sampling, static_cast<int32_t>(position));
  event.token = picked.id;
  event.finish = FinishReason::kNone;
  if (sampling.top_logprobs >= 0) event.logprobs = MakeLogprobs(row, picked);
  const std::vector<int32_t>& stop = sequence.request.stop;
  if (std::binary_search(stop.begin(), stop.end(), event.token)) {
    event.finish = FinishReason::kStop;
  } else if (position + 1 >= sequence.limit) {
    event.finish = FinishReason::kLength;
  }
  return event;
}

// One token a row, as long as the guesses before it are right.
void Scheduler::Advance(Sequence& sequence, std::span<const RowResult> rows, int64_t first_row) {
  std::vector<int32_t>& tokens = sequence.tokens;
  const int64_t certain = sequence.computed;
  int64_t size = certain;  // tokens that are known
  for (bool right = true; right && sequence.ended == FinishReason::kNone; ++first_row) {
    TokenEvent event = Sample(sequence, size, rows[static_cast<size_t>(size - certain)]);
    sequence.ended = event.finish;
    if (event.token >= 0) {
      event.row = static_cast<int32_t>(first_row);
      right = size < std::ssize(tokens) && tokens[static_cast<size_t>(size)] == event.token;
      if (!right) tokens.resize(static_cast<size_t>(size));
      if (!right) tokens.push_back(event.token);
      ++size;
    }
    events_.push_back(std::move(event));
  }
  sequence.accepted = std::max<int64_t>(0, size - 1 - certain);
  sequence.computed += sequence.accepted;
  accepted_tokens_ += sequence.accepted;
  if (sequence.guessed > 0) sequence.guess_count.Learn(sequence.guessed, sequence.accepted);
  if (sequence.ended != FinishReason::kFault) Keep(sequence);
}

void Scheduler::Complete(std::span<const RowResult> rows) {
  TRINE_CHECK(rows.size() == command_.rows.size(), "one result for each row that was asked for");
  size_t row = 0;
  for (Sequence& sequence : running_) {
    if (!sequence.in_step) continue;
    sequence.in_step = false;
    const FinishReason asked_to_end = sequence.ended;
    const size_t sampled = row + static_cast<size_t>(std::exchange(sequence.prompt_rows, 0));
    const auto count = static_cast<size_t>(std::exchange(sequence.rows, 0));
    for (; row < sampled && sequence.ended == FinishReason::kNone; ++row) {
      events_.push_back(Score(sequence, rows[row]));
      events_.back().row = static_cast<int32_t>(row);
      sequence.ended = events_.back().finish;
    }
    if (asked_to_end != FinishReason::kNone) {
      events_.push_back({sequence.id, -1, -1, asked_to_end});
    } else if (count > 0 && sequence.ended == FinishReason::kNone) {
      Advance(sequence, rows.subspan(sampled, count), static_cast<int64_t>(sampled));
    }
    row = sampled + count;
    if (sequence.ended != FinishReason::kNone) GiveBack(sequence);
  }
  std::erase_if(running_, [](const Sequence& s) { return s.ended != FinishReason::kNone; });
}

void Scheduler::TakeEvents(std::vector<TokenEvent>& events) {
  events.clear();
  events.swap(events_);
}

void Scheduler::End(int64_t request, FinishReason why) {
  const auto is_it = [&](const Sequence& sequence) { return sequence.id == request; };
  const auto runs = std::find_if(running_.begin(), running_.end(), is_it);
  if (runs != running_.end() && runs->in_step) {
    if (runs->ended == FinishReason::kNone) runs->ended = why;
    return;
  }
  if (runs != running_.end()) {
    GiveBack(*runs);
    running_.erase(runs);
    events_.push_back({request, -1, -1, why});
    return;
  }
  for (auto& [client, sequences] : waiting_) {
    const auto waits = std::find_if(sequences.begin(), sequences.end(), is_it);
    if (waits == sequences.end()) continue;
    sequences.erase(waits);
    events_.push_back({request, -1, -1, why});
    if (sequences.empty()) waiting_.erase(client);
    return;
  }
}

int32_t Scheduler::slot(int64_t request) const {
  for (const Sequence& sequence : running_) {
    if (sequence.id == request) return sequence.slot;
  }
  return -1;
}

void Scheduler::Expire(int64_t now) {
  std::vector<int64_t> late;
  const auto look_at = [&](const Sequence& sequence) {
    if (sequence.request.deadline < now) late.push_back(sequence.id);
  };
  std::for_each(running_.begin(), running_.end(), look_at);
  for (const auto& [client, sequences] : waiting_) {
    std::for_each(sequences.begin(), sequences.end(), look_at);
  }
  for (const int64_t request : late) End(request, FinishReason::kDeadline);
}

}  // namespace trine
