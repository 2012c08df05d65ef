#include "src/engine/rank_loop.h"

#include <algorithm>
#include <cstring>

#include "comm/progress.h"
#include "src/core/check.h"

namespace trine {
namespace {

DeltaLayout WithDrafts(DeltaLayout layout, int64_t drafts) {
  layout.drafts = drafts;
  return layout;
}

}  // namespace

RankExecutor::RankExecutor(Model& model, RankContext& context, std::vector<Interval> vocab_shards,
                           const std::vector<uint8_t>& allowed, const ExecutorLimits& limits)
    : model_(model),
      context_(context),
      vocab_shards_(std::move(vocab_shards)),
      most_drafts_(limits.drafts),
      first_snapshot_(limits.sequences),
      cache_(context.backend, model.kv_layout(), model.kv_layers(), limits.pages),
      states_(context.backend, WithDrafts(model.delta_layout(), limits.drafts),
              model.delta_layers(), limits.sequences, limits.snapshots),
      gather_(context.comm, context.seals),
      exchange_(context.backend, gather_, context.comm.world(), model.vocab_shard(), vocab_shards_,
                allowed),
      slots_(static_cast<size_t>(limits.sequences)) {
  logits_ = context.backend.Allocate(limits.step.logit_rows * model.vocab_shard().size() * 4);
  row_faults_.reserve(static_cast<size_t>(limits.step.tokens));
  for (Slot& slot : slots_) slot.pages.reserve(static_cast<size_t>(limits.sequence_pages));
  pages_.reserve(static_cast<size_t>(limits.pages));
}

const StepResult& RankExecutor::Execute(const StepCommand& command) {
  EnterStep(command);
  const int64_t first_collective = context_.seals.collective() + 1;
  BuildBatch(command);
  RestoreStates(command);
  const TokenPlaces places{positions_,   sequences_, page_indptr_, pages_,
                           state_slots_, drafts_,    accepted_};
  const StepBatch batch{command.tokens, places, logit_rows_};
  const int64_t shard = model_.vocab_shard().size();
  const F32View logits{logits_.as<float>(), std::ssize(logit_rows_), shard, shard};  // [R, V]
  TRINE_CHECK(logits.rows * logits.cols * 4 <= logits_.bytes(), "more rows than a step may have");
  model_.Forward(batch, {cache_.layers(), states_.layers(), row_faults_}, logits);
  EndIfBroken(first_collective);
  SaveStates(command);
  NoteFaults(command);
  if (command.gather_logits) GatherLogits(logits);
  exchange_.Run(command, logits, result_.rows);
  return result_;
}

// A step that reads a prompt is a prefill, whatever else it does.
void RankExecutor::EnterStep(const StepCommand& command) {
  const bool reads = std::ranges::any_of(command.sequences, [](const SequenceStep& sequence) {
    return sequence.tokens - sequence.drafts > 1 || sequence.first_position == 0;
  });
  OwnProgress().Enter(reads ? Phase::kPrefill : Phase::kDecode, ++steps_);
}

// A checksum that is wrong is no request's fault: the job cannot be trusted any more.
void RankExecutor::EndIfBroken(int64_t first_collective) {
  const Breach breach = context_.backend.breach();
  if (!breach.seen) return;
  const Standing now = OwnProgress().standing();
  context_.comm.Abort(PlaceText(now.phase, now.step) +
                      context_.seals.Explain(first_collective, breach.seal, breach.difference) +
                      kUnsound);
}

// Applies the page deltas and lays out positions, page tables and logit rows.
void RankExecutor::BuildBatch(const StepCommand& command) {
  positions_.clear();
  sequences_.clear();
  pages_.clear();
  state_slots_.clear();
  drafts_.clear();
  accepted_.clear();
  logit_rows_.clear();
  page_indptr_.assign(1, 0);
  row_faults_.assign(command.tokens.size(), 0);
  auto new_page = command.new_pages.begin();
  for (const SequenceStep& step : command.sequences) {
    Slot& slot = slots_[static_cast<size_t>(step.slot)];
    if (step.begins != 0) {
      slot.pages.clear();
      slot.fault = false;
      slot.drafts = 0;
    }
    TRINE_CHECK(step.drafts <= most_drafts_ && step.drafts < step.tokens, "too many drafts");
    TRINE_CHECK(step.accepted <= slot.drafts, "more drafts accepted than there were");
    slot.fault |= step.accepted > slot.sound_drafts;
    slot.drafts = step.drafts;
    slot.pages.insert(slot.pages.end(), new_page, new_page + step.new_pages);
    new_page += step.new_pages;
    for (int32_t i = 0; i < step.tokens; ++i) {
      positions_.push_back(step.first_position + i);
      sequences_.push_back(static_cast<int32_t>(page_indptr_.size() - 1));
    }
    state_slots_.push_back(step.slot);
    drafts_.push_back(step.drafts);
    accepted_.push_back(step.accepted);
    pages_.insert(pages_.end(), slot.pages.begin(), slot.pages.end());
    page_indptr_.push_back(static_cast<int32_t>(pages_.size()));
  }
  for (const LogitRow& row : command.rows) logit_rows_.push_back(row.row);
}

void RankExecutor::RestoreStates(const StepCommand& command) {
  for (const SequenceStep& step : command.sequences) {
    if (step.restore < 0) continue;
    states_.Copy(context_.backend, first_snapshot_ + step.restore, step.slot);
  }
}

void RankExecutor::SaveStates(const StepCommand& command) {
  for (const SequenceStep& step : command.sequences) {
    if (step.save >= 0) states_.Copy(context_.backend, step.slot, first_snapshot_ + step.save);
  }
}

// A fault stays with its sequence: later tokens attend to the faulty one. That of a draft does so
// once the draft is accepted.
void RankExecutor::NoteFaults(const StepCommand& command) {
  result_.rows.assign(command.rows.size(), {});
  size_t token = 0, row = 0;
  for (const SequenceStep& step : command.sequences) {
    Slot& slot = slots_[static_cast<size_t>(step.slot)];
    const size_t end = token + static_cast<size_t>(step.tokens);
    const size_t certain = end - static_cast<size_t>(step.drafts);
    slot.sound_drafts = 0;
    for (bool fault = slot.fault; token < end; ++token) {
      fault |= row_faults_[token] != 0;
      if (token < certain) slot.fault = fault;
      if (token >= certain && !fault) ++slot.sound_drafts;
      const bool wanted =
          row < command.rows.size() && static_cast<size_t>(command.rows[row].row) == token;
      if (wanted) result_.rows[row++].fault = fault;
    }
  }
}

void RankExecutor::GatherLogits(F32View logits) {
  const int64_t vocab = model_.config().vocab;
  counts_.clear();
  for (const Interval& shard : vocab_shards_) counts_.push_back(logits.rows * shard.size() * 4);
  all_logits_.resize(static_cast<size_t>(logits.rows * vocab));
  logit_matrix_.resize(all_logits_.size());
  gather_.Run(logits.data, all_logits_.data(), counts_);
  const float* from = all_logits_.data();
  for (const Interval& shard : vocab_shards_) {
    for (int64_t r = 0; r < logits.rows; ++r, from += shard.size()) {
      std::copy(from, from + shard.size(), logit_matrix_.data() + r * vocab + shard.begin);
    }
  }
  result_.logits = logit_matrix_;
}

void RunWorker(ControlChannel& control, RankExecutor& executor) {
  Bytes message;
  message.reserve(kMessageBytes);
  StepCommand command;
  for (;;) {
    control.Broadcast(message, /*root=*/0);
    Decode(message, command);
    if (command.stop()) return;
    executor.Execute(command);
    OwnProgress().Enter(Phase::kIdle);
  }
}

const StepResult& BroadcastAndExecute(ControlChannel& control, RankExecutor& executor,
                                      const StepCommand& command, Bytes& message) {
  Encode(command, message);
  control.Broadcast(message, /*root=*/0);
  return executor.Execute(command);
}

void BroadcastStop(ControlChannel& control) {
  OwnProgress().Enter(Phase::kIdle);
  OwnProgress().Enter(Phase::kShutdown);
  Bytes message;
  Encode(StepCommand{}, message);
  control.Broadcast(message, /*root=*/0);
}

}  // namespace trine
