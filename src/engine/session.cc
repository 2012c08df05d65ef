#include "src/engine/session.h"

#include <algorithm>
#include <cstring>

#include "comm/progress.h"

namespace trine {

Result<std::unique_ptr<Tokenizer>> TokenizerOf(const WeightStore& store) {
  const std::string& folder = store.tokenizer_folder();
  return folder.empty() ? Tokenizer::FromMetadata(store.metadata())
                        : Tokenizer::FromJson(folder + "/tokenizer.json");
}

Result<std::unique_ptr<Session>> Session::Open(
    const SessionOptions& options, ControlChannel& control, Communicator& comm,
    const std::function<void(int64_t done, int64_t total)>& progress) {
  std::unique_ptr<Session> session(new Session(control, comm));
  TRINE_RETURN_IF_ERROR(control.Agree(session->ReadHeaders(options)));
  TRINE_RETURN_IF_ERROR(control.Agree(session->CheckSameFile()));
  TRINE_RETURN_IF_ERROR(control.Agree(session->SizeKvCache(options)));
  TRINE_RETURN_IF_ERROR(control.Agree(session->Load(options, progress)));
  session->MakeExecutor();
  return session;
}

Status Session::ReadHeaders(const SessionOptions& options) {
  TRINE_ASSIGN(store_, OpenWeights(options.model));
  const int rank = comm_.world().rank;
  TRINE_ASSIGN(plan_, PlanJob(*store_, options, comm_.world().size));
  TRINE_ASSIGN(const std::vector<RankMemory> memory,
               PlanMemory(*store_, options, plan_, {rank, rank + 1}));
  room_ = {memory[0], options.memory};
  Result<std::unique_ptr<Tokenizer>> tokenizer = TokenizerOf(*store_);
  if (!tokenizer.ok()) return BadInput(options.model + ": " + tokenizer.status().message());
  tokenizer_ = std::move(*tokenizer);
  if (tokenizer_->size() > plan_.model.config.vocab) {
    return BadInput(options.model + ": the tokenizer has " + std::to_string(tokenizer_->size()) +
                    " tokens, token_embd.weight " + std::to_string(plan_.model.config.vocab) +
                    " rows; the file is damaged, get it again");
  }
  return ListDrawable();
}

// Which ids may be sampled: not the padding of the vocabulary.
Status Session::ListDrawable() {
  drawable_.assign(static_cast<size_t>(plan_.model.config.vocab), 0);
  int64_t count = 0;
  for (int64_t id = 0; id < tokenizer_->size(); ++id) {
    const bool drawn = tokenizer_->Type(static_cast<int32_t>(id)) != TokenType::kUnused;
    drawable_[static_cast<size_t>(id)] = drawn ? 1 : 0;
    count += drawn ? 1 : 0;
  }
  if (count > 0) return {};
  return BadInput(store_->name() +
                  ": every token of 'tokenizer.ggml.token_type' is "
                  "unused (5); the file is damaged, get it again");
}

// Hosts may hold different files under one path.
Status Session::CheckSameFile() {
  std::string table;
  for (const File& file : store_->files()) table += std::to_string(file.size()) + '\n';
  for (const TensorInfo& tensor : store_->tensors()) {
    table += tensor.name + ' ' + Info(tensor.type).name + ShapeText(tensor.shape) + ' ' +
             std::to_string(tensor.offset) + '\n';
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(table.data());
  const std::vector<Bytes> all = control_.AllGather(Bytes(bytes, bytes + table.size()));
  if (all[static_cast<size_t>(comm_.world().rank)] == all[0]) return {};
  return BadInput(store_->name() +
                  " has other tensors than on rank 0; give every host "
                  "the same file");
}

// Every rank does the same arithmetic on the numbers of all.
Status Session::SizeKvCache(const SessionOptions& options) {
  Bytes mine(sizeof room_);
  std::memcpy(mine.data(), &room_, sizeof room_);
  std::vector<RankRoom> rooms;
  for (const Bytes& room : control_.AllGather(mine)) {
    std::memcpy(&rooms.emplace_back(), room.data(), sizeof(RankRoom));
  }
  TRINE_ASSIGN(plan_.limits.pages, FitPages(rooms, options, plan_));
  return {};
}

Status Session::Load(const SessionOptions& options,
                     const std::function<void(int64_t done, int64_t total)>& progress) {
  OwnProgress().Enter(Phase::kLoad);
  std::string error;
  backend_ = MakeCpuBackend({options.threads, options.compute}, &error);
  if (backend_ == nullptr) return BadInput(error);
  if (options.decorate) backend_ = options.decorate(std::move(backend_));
  context_ = std::make_unique<RankContext>(*backend_, comm_, plan_.step, options.kv_type);
  const int64_t total = LoadedBytes(plan_.model.claims[static_cast<size_t>(comm_.world().rank)]);
  int64_t done = 0;
  TRINE_ASSIGN(model_,
               LoadModel(*store_, plan_.model, comm_.world().rank, *context_, [&](int64_t bytes) {
                 done += bytes;
                 OwnProgress().Move();
                 if (progress) progress(done, total);
               }));
  return {};
}

void Session::MakeExecutor() {
  std::vector<Interval> vocab_shards;
  for (int rank = 0; rank < plan_.model.ranks(); ++rank) {
    vocab_shards.push_back(plan_.model.shards.share(rank).vocab);
  }
  executor_ = std::make_unique<RankExecutor>(*model_, *context_, std::move(vocab_shards), drawable_,
                                             LimitsOf(plan_));
}

std::span<const TokenEvent> Session::Step(Scheduler& scheduler, const OnRow& on_row) {
  StepCommand& command = scheduler.Next();
  command.gather_logits = static_cast<bool>(on_row) && !command.rows.empty();
  const StepResult& result = Execute(command);
  scheduler.Complete(result.rows);
  scheduler.TakeEvents(events_);
  const auto vocab = static_cast<size_t>(config().vocab);
  for (const TokenEvent& event : events_) {
    if (!on_row || event.row < 0) continue;
    on_row(event, result.logits.subspan(static_cast<size_t>(event.row) * vocab, vocab));
  }
  return events_;
}

}  // namespace trine
