#include "src/engine/candidate_exchange.h"

#include <algorithm>

#include "src/engine/sampler.h"

namespace trine {

// Every rank has whole blocks of the sums.
static_assert(kVocabBlock % kLogSumBlock == 0);

CandidateExchange::CandidateExchange(Backend& backend, SealedGather& gather, const World& world,
                                     Interval shard, const std::vector<Interval>& vocab_shards,
                                     const std::vector<uint8_t>& allowed)
    : backend_(backend),
      gather_(gather),
      world_(world),
      first_id_(static_cast<int32_t>(shard.begin)),
      vocab_shards_(vocab_shards),
      allowed_(backend.Allocate(shard.size())) {
  backend.Upload(allowed.data() + shard.begin, shard.size(), allowed_.as());
}

void CandidateExchange::Run(const StepCommand& command, F32View logits,
                            std::span<RowResult> results) {
  AskForCandidates(command);
  Exchange(first_, logits);
  auto found = first_.found.begin();
  for (size_t r = 0; found != first_.found.end(); ++r) {
    if (command.rows[r].spec.count > 0) {
      results[r].candidates = found->best;
      results[r].sum = found++->sum;
    }
    if (command.rows[r].logprobs >= 0) {
      results[r].likeliest = found->best;
      results[r].target = found->target;
      results[r].logit_sum = found++->sum;
    }
  }
  if (!AskForAllTokens(command, results)) return;
  Exchange(second_, logits);
  for (size_t i = 0; i < second_.found.size(); ++i) {
    results[static_cast<size_t>(second_.specs[i].row)].candidates = second_.found[i].best;
  }
}

void CandidateExchange::AskForCandidates(const StepCommand& command) {
  first_.specs.clear();
  second_.specs.clear();
  const LogitChange* changes = command.changes.data();
  for (size_t r = 0; r < command.rows.size(); ++r) {
    const LogitRow& row = command.rows[r];
    CandidateSpec spec = row.spec;
    spec.row = static_cast<int32_t>(r);
    spec.changes = {changes, static_cast<size_t>(row.changes)};
    changes += row.changes;
    if (spec.count > 0) first_.specs.push_back(spec);
    if (row.logprobs >= 0) {
      CandidateSpec raw;
      raw.row = spec.row;
      raw.count = row.logprobs;
      raw.target = row.target;
      raw.log_sums = true;
      first_.specs.push_back(raw);
    }
    if (row.top_p < 1 || row.min_p > 0) {
      spec.count = static_cast<int32_t>(vocab_shards_.back().end);
      spec.log_sums = false;
      second_.specs.push_back(spec);
    }
  }
}

// Leaves in the second round what rank 0 decides; whether there is anything.
bool CandidateExchange::AskForAllTokens(const StepCommand& command,
                                        std::span<const RowResult> results) {
  std::vector<CandidateSpec>& specs = second_.specs;
  if (specs.empty()) return false;
  unsettled_.clear();
  for (const CandidateSpec& spec : specs) {
    const auto row = static_cast<size_t>(spec.row);
    const bool unsettled = world_.rank == 0 && KeepsAll(command.rows[row], results[row]);
    unsettled_.push_back(unsettled ? 1 : 0);
  }
  counts_.assign(vocab_shards_.size(), 0);
  counts_[0] = std::ssize(unsettled_);
  gather_.Run(unsettled_.data(), unsettled_.data(), counts_);
  size_t kept = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (unsettled_[i] != 0) specs[kept++] = specs[i];
  }
  specs.resize(kept);
  return kept > 0;
}

int64_t CandidateExchange::CountOn(size_t rank, const CandidateSpec& spec) const {
  return std::min<int64_t>(spec.count, vocab_shards_[rank].size());
}

void CandidateExchange::Exchange(Round& round, F32View logits) {
  round.found.clear();
  if (round.specs.empty()) return;
  const auto me = static_cast<size_t>(world_.rank);
  counts_.assign(vocab_shards_.size(), 0);
  sum_counts_.assign(vocab_shards_.size(), 0);
  round.local = round.specs;
  for (CandidateSpec& spec : round.local) {
    for (size_t rank = 0; rank < counts_.size(); ++rank) {
      counts_[rank] += CountOn(rank, spec) + (spec.target >= 0 ? 1 : 0);
      if (spec.log_sums) sum_counts_[rank] += LogSumBlocks(vocab_shards_[rank].size());
    }
    spec.count = static_cast<int32_t>(CountOn(me, spec));
  }
  round.mine.resize(static_cast<size_t>(counts_[me]));
  round.my_sums.resize(static_cast<size_t>(sum_counts_[me]));
  backend_.TopCandidates(logits, first_id_, allowed_.as<uint8_t>(), round.local, round.mine.data(),
                         round.my_sums.data());
  Gather(round.mine, counts_, round.all);
  Gather(round.my_sums, sum_counts_, round.all_sums);
  if (me != 0) return;
  Merge(round);
  MergeSums(round);
}

// counts: of T, by rank; they become bytes.
template <typename T>
void CandidateExchange::Gather(const std::vector<T>& mine, std::vector<int64_t>& counts,
                               std::vector<T>& all) {
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  all.resize(static_cast<size_t>(total));
  if (total == 0) return;
  for (int64_t& count : counts) count *= static_cast<int64_t>(sizeof(T));
  gather_.Run(mine.data(), all.data(), counts);
}

// `all` is [rank][spec][count, target]; the lists of a spec, each in order, become one.
void CandidateExchange::Merge(Round& round) {
  lists_.clear();
  for (const Candidate* begin = round.all.data(); const int64_t bytes : counts_) {
    lists_.push_back({begin, begin});
    begin += bytes / static_cast<int64_t>(sizeof(Candidate));
  }
  round.merged.clear();
  round.merged.reserve(round.all.size());  // spans of it stay where they are
  for (const CandidateSpec& spec : round.specs) {
    Found& found = round.found.emplace_back();
    for (size_t rank = 0; rank < lists_.size(); ++rank) {
      lists_[rank].end = lists_[rank].next + CountOn(rank, spec);
    }
    const size_t begin = round.merged.size();
    for (int32_t i = 0; i < spec.count; ++i) {
      List* best = nullptr;
      for (List& list : lists_) {
        if (list.next == list.end || list.next->id < 0) continue;
        if (best == nullptr || CandidateBefore(*list.next, *best->next)) best = &list;
      }
      if (best == nullptr) break;
      round.merged.push_back(*best->next++);
    }
    found.best = std::span(round.merged).subspan(begin);
    for (List& list : lists_) {
      list.next = list.end;
      if (spec.target < 0) continue;
      if (list.next->id >= 0) found.target = *list.next;
      ++list.next;
    }
  }
}

// `all_sums` is [rank][spec][blocks]; those of a spec are added in the order of the vocabulary.
void CandidateExchange::MergeSums(Round& round) {
  int64_t skipped = 0;  // blocks of a rank that are earlier specs'
  for (size_t s = 0; s < round.specs.size(); ++s) {
    if (!round.specs[s].log_sums) continue;
    blocks_.clear();
    const LogSum* of_rank = round.all_sums.data();
    for (size_t rank = 0; rank < vocab_shards_.size(); ++rank) {
      const int64_t blocks = LogSumBlocks(vocab_shards_[rank].size());
      const LogSum* begin = of_rank + skipped * blocks;
      blocks_.insert(blocks_.end(), begin, begin + blocks);
      of_rank += sum_counts_[rank] / static_cast<int64_t>(sizeof(LogSum));
    }
    ++skipped;
    round.found[s].sum = SumBlocks(blocks_);
  }
}

}  // namespace trine
