#include "src/engine/scheduler.h"

#include <algorithm>
#include <map>

#include "src/core/check.h"

namespace trine {

Scheduler::Scheduler(const SchedulerLimits& limits) : limits_(limits), pages_(limits.pages) {
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
  waiting_.push_back(std::move(sequence));
  return waiting_.back().id;
}

void Scheduler::Admit() {
  while (!waiting_.empty() && !free_slots_.empty()) {
    Sequence& first = waiting_.front();
    const int64_t needed = PagesFor(first.limit);
    if (needed > pages_.available() - reserved_pages_) return;
    first.reserved = needed;
    reserved_pages_ += needed;
    first.slot = free_slots_.back();
    free_slots_.pop_back();
    running_.push_back(std::move(first));
    waiting_.pop_front();
  }
}

StepCommand Scheduler::Next() {
  Admit();
  StepCommand command;
  sampled_.clear();
  int64_t budget = limits_.step_tokens;
  for (Sequence& sequence : running_) {
    const int64_t pending = std::ssize(sequence.tokens) - sequence.computed;
    const int64_t count = std::min(pending, budget);
    if (count == 0) break;
    AddSequence(sequence, count, command);
    if (count == pending) AddLogitRow(sequence, command);
    budget -= count;
  }
  return command;
}

void Scheduler::AddSequence(Sequence& sequence, int64_t count, StepCommand& command) {
  SequenceStep step;
  step.slot = sequence.slot;
  step.first_position = static_cast<int32_t>(sequence.computed);
  step.tokens = static_cast<int32_t>(count);
  const int64_t pages = PagesFor(sequence.computed + count);
  while (std::ssize(sequence.pages) < pages) {
    sequence.pages.push_back(pages_.Take());
    command.new_pages.push_back(sequence.pages.back());
    --sequence.reserved;
    --reserved_pages_;
    ++step.new_pages;
  }
  const auto first = sequence.tokens.begin() + sequence.computed;
  command.tokens.insert(command.tokens.end(), first, first + count);
  command.sequences.push_back(step);
  sequence.computed += count;
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
    events.push_back(Append(*sequence, rows[i]));
    if (events.back().finish == FinishReason::kNone) continue;
    pages_.Release(sequence->pages);
    reserved_pages_ -= sequence->reserved;
    free_slots_.push_back(sequence->slot);
    running_.erase(sequence);
  }
  return events;
}

}  // namespace trine
