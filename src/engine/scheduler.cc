#include "src/engine/scheduler.h"

#include <algorithm>
#include <map>

#include "src/core/check.h"

namespace trine {

Scheduler::Scheduler(const SchedulerLimits& limits)
    : limits_(limits), cache_(limits.pages, limits.snapshots, limits.recurrent) {
  for (int64_t slot = limits.sequences - 1; slot >= 0; --slot) {
    free_slots_.push_back(static_cast<int32_t>(slot));
  }
}

Result<int64_t> Scheduler::Submit(Request request) {
  TRINE_CHECK(!request.prompt.empty(), "a request has a prompt");
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t wanted = request.max_tokens < 0 ? 1 : request.max_tokens;
  if (prompt + wanted > limits_.context) {
    return BadInput(
        "the prompt has " + std::to_string(prompt) + " tokens and " + std::to_string(wanted) +
        " are to follow, but the context holds " + std::to_string(limits_.context) +
        (limits_.context < limits_.made_for ? "; use a larger --ctx-size"
                                            : ", all that the model was made for; ask for less"));
  }
  Sequence sequence;
  sequence.id = next_id_++;
  sequence.tokens = request.prompt;
  sequence.limit = request.max_tokens < 0 ? limits_.context : prompt + request.max_tokens;
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

// The client after the one that was served last.
std::deque<Scheduler::Sequence>* Scheduler::NextClient() {
  if (waiting_.empty()) return nullptr;
  auto next = waiting_.upper_bound(last_client_);
  if (next == waiting_.end()) next = waiting_.begin();
  return &next->second;
}

// Those that wait, as long as there are a slot and the pages of all that they have to compute now:
// one that is admitted makes progress before it can lose its pages.
void Scheduler::Admit() {
  int64_t promised = 0;
  for (const Sequence& sequence : running_) {
    promised += PagesFor(std::ssize(sequence.tokens)) - std::ssize(sequence.held.pages);
  }
  while (std::deque<Sequence>* client = NextClient()) {
    Sequence& first = client->front();
    promised += PagesFor(std::ssize(first.tokens));
    if (free_slots_.empty() || promised > cache_.available()) return;
    // At least one token is to be computed: its logits are wanted.
    first.restore = cache_.Find(std::span(first.tokens).first(first.tokens.size() - 1), first.held);
    first.computed = std::ssize(first.held.pages) * kPageTokens;
    promised -= std::ssize(first.held.pages);
    cached_tokens_ += first.computed;
    first.slot = free_slots_.back();
    free_slots_.pop_back();
    last_client_ = first.request.client;
    running_.push_back(std::move(first));
    client->pop_front();
    if (client->empty()) waiting_.erase(last_client_);
  }
}

// Tokens for each sequence that still reads its prompt: an even part of what those that decode
// leave, but no less than a page.
int64_t Scheduler::PrefillShare() const {
  int64_t reading = 0, decoding = 0;
  for (const Sequence& sequence : running_) ++(sequence.pending() > 1 ? reading : decoding);
  const int64_t left = limits_.step_tokens - decoding;
  return reading == 0 ? 0 : std::max<int64_t>((left + reading - 1) / reading, kPageTokens);
}

StepCommand Scheduler::Next() {
  Admit();
  StepCommand command;
  sampled_.clear();
  const int64_t share = PrefillShare();
  int64_t decoding = 0;  // behind the sequence that is looked at
  for (const Sequence& sequence : running_) decoding += sequence.pending() == 1 ? 1 : 0;
  int64_t budget = limits_.step_tokens;
  for (size_t i = 0; i < running_.size(); ++i) {
    const bool decodes = running_[i].pending() == 1;
    decoding -= decodes ? 1 : 0;
    const int64_t wanted =
        decodes ? std::min<int64_t>(1, budget)
                : std::min({running_[i].pending(), share, std::max<int64_t>(0, budget - decoding)});
    const int64_t count = UpToSnapshot(running_[i], HoldPages(i, wanted));
    if (count == 0) continue;
    AddSequence(running_[i], count, command);
    if (running_[i].pending() == 0) AddLogitRow(running_[i], command);
    budget -= count;
  }
  TRINE_CHECK(!command.sequences.empty(), "a scheduler that is not idle has a next step");
  return command;
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

void Scheduler::GiveBack(Sequence& sequence) {
  for (const auto& [pages, snapshot] : sequence.saved) cache_.ReturnSnapshot(snapshot);
  sequence.saved.clear();
  if (sequence.restore >= 0) cache_.Restored(sequence.held);
  cache_.Release(sequence.held);
  sequence.computed = sequence.told = sequence.last_decoded = 0;
  sequence.restore = -1;
  free_slots_.push_back(sequence.slot);
  sequence.slot = -1;
}

void Scheduler::AddSequence(Sequence& sequence, int64_t count, StepCommand& command) {
  SequenceStep step;
  step.slot = sequence.slot;
  step.first_position = static_cast<int32_t>(sequence.computed);
  step.tokens = static_cast<int32_t>(count);
  step.begins = sequence.told == 0 ? 1 : 0;
  step.restore = std::exchange(sequence.restore, -1);
  if (step.restore >= 0) cache_.Restored(sequence.held);
  std::vector<int32_t>& pages = sequence.held.pages;
  while (std::ssize(pages) < PagesFor(sequence.computed + count)) pages.push_back(cache_.Take());
  command.new_pages.insert(command.new_pages.end(), pages.begin() + sequence.told, pages.end());
  step.new_pages = static_cast<int32_t>(std::ssize(pages) - sequence.told);
  sequence.told = std::ssize(pages);
  const auto first = sequence.tokens.begin() + sequence.computed;
  command.tokens.insert(command.tokens.end(), first, first + count);
  sequence.computed += count;
  sequence.in_step = true;
  step.save = SaveState(sequence);
  command.sequences.push_back(step);
}

// The snapshot that the state after this step goes to: at the end of every page that a step ends
// with.
int32_t Scheduler::SaveState(Sequence& sequence) {
  if (limits_.snapshots == 0 || sequence.computed % kPageTokens != 0) return -1;
  const int32_t snapshot = cache_.TakeSnapshot();
  if (snapshot >= 0) sequence.saved.emplace_back(sequence.computed / kPageTokens, snapshot);
  return snapshot;
}

// After a good row: what has been computed so far is true, and may serve others.
void Scheduler::Keep(Sequence& sequence) {
  cache_.Add(std::span(sequence.tokens).first(static_cast<size_t>(sequence.computed)),
             sequence.held);
  for (const auto& [pages, snapshot] : std::exchange(sequence.saved, {})) {
    const bool decoded = pages * kPageTokens >= std::ssize(sequence.request.prompt);
    // Of those that are made while decoding the last one is enough.
    if (decoded && sequence.last_decoded > 0) cache_.Detach(sequence.held, sequence.last_decoded);
    if (decoded) sequence.last_decoded = pages;
    cache_.Attach(sequence.held, pages, snapshot);
  }
}

void Scheduler::AddLogitRow(Sequence& sequence, StepCommand& command) {
  const SamplingParams& sampling = sequence.request.sampling;
  LogitRow row;
  row.row = static_cast<int32_t>(command.tokens.size() - 1);
  row.spec =
      MakeCandidateSpec(sampling, static_cast<int32_t>(sequence.tokens.size()), limits_.vocab);
  const bool penalised = sampling.repeat_penalty != 1 || sampling.presence_penalty != 0 ||
                         sampling.frequency_penalty != 0;
  if (penalised) {
    const int64_t size = std::ssize(sequence.tokens);
    const int64_t look_back = sampling.repeat_last_n < 0 ? size : sampling.repeat_last_n;
    std::map<int32_t, int32_t> counts;
    for (int64_t i = std::max<int64_t>(0, size - look_back); i < size; ++i) {
      ++counts[sequence.tokens[static_cast<size_t>(i)]];
    }
    for (const auto& [token, count] : counts) command.windows.push_back({token, count});
    row.window = static_cast<int32_t>(counts.size());
  }
  command.rows.push_back(row);
  sampled_.push_back(sequence.id);
}

TokenEvent Scheduler::Append(Sequence& sequence, const RowResult& row) const {
  TokenEvent event{sequence.id, -1, FinishReason::kFault};
  if (row.fault) return event;
  event.token = PickToken(row.candidates, sequence.request.sampling,
                          static_cast<int32_t>(sequence.tokens.size()));
  event.finish = FinishReason::kNone;
  sequence.tokens.push_back(event.token);
  const std::vector<int32_t>& stop = sequence.request.stop;
  if (std::binary_search(stop.begin(), stop.end(), event.token)) {
    event.finish = FinishReason::kStop;
  } else if (std::ssize(sequence.tokens) >= sequence.limit) {
    event.finish = FinishReason::kLength;
  }
  return event;
}

std::vector<TokenEvent> Scheduler::Complete(std::span<const RowResult> rows) {
  TRINE_CHECK(rows.size() == sampled_.size(), "one result for each row that was asked for");
  std::vector<TokenEvent> events;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto sequence = std::find_if(running_.begin(), running_.end(),
                                       [&](const Sequence& s) { return s.id == sampled_[i]; });
    if (sequence->ended != FinishReason::kNone) continue;
    events.push_back(Append(*sequence, rows[i]));
    sequence->ended = events.back().finish;
    if (sequence->ended != FinishReason::kFault) Keep(*sequence);
  }
  for (auto sequence = running_.begin(); sequence != running_.end();) {
    const bool told = std::any_of(events.begin(), events.end(), [&](const TokenEvent& event) {
      return event.request == sequence->id;
    });
    if (!told && sequence->ended != FinishReason::kNone) {
      events.push_back({sequence->id, -1, sequence->ended});
    }
    sequence->in_step = false;
    if (sequence->ended != FinishReason::kNone) {
      GiveBack(*sequence);
      sequence = running_.erase(sequence);
    } else {
      ++sequence;
    }
  }
  return events;
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
    events_.push_back({request, -1, why});
    return;
  }
  for (auto& [client, sequences] : waiting_) {
    const auto waits = std::find_if(sequences.begin(), sequences.end(), is_it);
    if (waits == sequences.end()) continue;
    sequences.erase(waits);
    events_.push_back({request, -1, why});
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
