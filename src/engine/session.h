// Session: one rank's running model, from file to executor. Opening it is the start-up sequence
// that every model-running command shares; each phase ends in an agreement, so that an error on any
// rank ends all of them with the same message.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/control.h"
#include "src/core/result.h"
#include "src/engine/fit_pages.h"
#include "src/engine/job_plan.h"
#include "src/engine/rank_loop.h"
#include "src/engine/scheduler.h"
#include "src/models/model.h"
#include "src/text/tokenizer.h"
#include "src/weights/weight_store.h"

namespace trine {

// The tokenizer of a model's files. Blocks on the disk.
Result<std::unique_ptr<Tokenizer>> TokenizerOf(const WeightStore& store);

class Session {
 public:
  // Collective. The ranks may differ in options.memory: the KV cache has the pages that fit on all
  // of them. progress (may be empty) is called on this rank while it loads, with bytes so far and
  // in all.
  static Result<std::unique_ptr<Session>> Open(
      const SessionOptions& options, ControlChannel& control, Communicator& comm,
      const std::function<void(int64_t done, int64_t total)>& progress);

  const WeightStore& store() const { return *store_; }
  const ModelConfig& config() const { return plan_.model.config; }
  const ModelPlan& plan() const { return plan_.model; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const Backend& backend() const { return *backend_; }
  int64_t context() const { return plan_.limits.context; }
  const SchedulerLimits& scheduler_limits() const { return plan_.limits; }
  const StepLimits& step_limits() const { return plan_.step; }

  // Ranks other than 0: serve steps until rank 0's Stop.
  void Work() { RunWorker(control_, *executor_); }

  // Rank 0. One step on every rank; the result is valid until the next.
  const StepResult& Execute(const StepCommand& command) {
    return BroadcastAndExecute(control_, *executor_, command, message_);
  }

  // Rank 0. One step of a scheduler that is not idle: its events, until the next call; on_row, if
  // given, gets each that has a row of logits with these, raw [vocab].
  using OnRow = std::function<void(const TokenEvent&, std::span<const float> logits)>;
  std::span<const TokenEvent> Step(Scheduler& scheduler, const OnRow& on_row = {});
  void Stop() { BroadcastStop(control_); }

 private:
  Session(ControlChannel& control, Communicator& comm) : control_(control), comm_(comm) {
    message_.reserve(kMessageBytes);
  }
  Status ReadHeaders(const SessionOptions& options);
  Status ListDrawable();
  Status CheckSameFile();
  Status SizeKvCache(const SessionOptions& options);
  Status Load(const SessionOptions& options,
              const std::function<void(int64_t done, int64_t total)>& progress);
  void MakeExecutor();

  ControlChannel& control_;
  Communicator& comm_;
  std::unique_ptr<WeightStore> store_;
  std::unique_ptr<Tokenizer> tokenizer_;
  JobPlan plan_;
  RankRoom room_;
  std::vector<uint8_t> drawable_;  // [vocab]
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<RankContext> context_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<RankExecutor> executor_;
  Bytes message_;
  std::vector<TokenEvent> events_;
};

}  // namespace trine
