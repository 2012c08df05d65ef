// The exchange of candidates: every rank picks the best few tokens of its shard of the logits, rank
// 0 gets and merges them. What rank 0 has in the end is the same at every rank count, bit by bit.
//
// A row whose filters could keep more than its candidates takes a second round: rank 0 looks
// whether they do, and if so all ranks send every token of it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/sealed_gather.h"
#include "kernels/backend.h"
#include "src/engine/step_command.h"
#include "src/weights/shard_plan.h"

namespace trine {

class CandidateExchange {
 public:
  // shard: this rank's rows of the vocabulary; vocab_shards: those of every rank, in order;
  // allowed [vocab]: 0 marks padding that is never drawn.
  // What is passed by reference must outlive this, but for `allowed`.
  CandidateExchange(Backend& backend, SealedGather& gather, const World& world, Interval shard,
                    const std::vector<Interval>& vocab_shards, const std::vector<uint8_t>& allowed);

  // Collective. logits [R, shard]: of the command's rows, left as they are. On rank 0 `results` [R]
  // get all but `fault`; spans are valid until the next call.
  void Run(const StepCommand& command, F32View logits, std::span<RowResult> results);

 private:
  // What rank 0 finds for a spec.
  struct Found {
    std::span<const Candidate> best;
    Candidate target;
    LogSum sum;
  };
  struct Round {
    std::vector<CandidateSpec> specs;  // counts: of all ranks together
    std::vector<CandidateSpec> local;  // counts: of this rank
    std::vector<Candidate> mine, all;  // all: by rank, then by spec
    std::vector<LogSum> my_sums, all_sums;
    std::vector<Candidate> merged;
    std::vector<Found> found;
  };

  struct List {
    const Candidate* next;
    const Candidate* end;
  };

  void AskForCandidates(const StepCommand& command);
  bool AskForAllTokens(const StepCommand& command, std::span<const RowResult> results);
  void Exchange(Round& round, F32View logits);
  template <typename T>
  void Gather(const std::vector<T>& mine, std::vector<int64_t>& counts, std::vector<T>& all);
  void Merge(Round& round);
  void MergeSums(Round& round);
  int64_t CountOn(size_t rank, const CandidateSpec& spec) const;

  Backend& backend_;
  SealedGather& gather_;
  const World world_;
  const int32_t first_id_;
  const std::vector<Interval>& vocab_shards_;
  Buffer allowed_;  // this rank's shard

  Round first_, second_;
  std::vector<uint8_t> unsettled_;            // by spec of the second round: 1: stays there
  std::vector<int64_t> counts_, sum_counts_;  // by rank, of a gather
  std::vector<List> lists_;                   // by rank, while merging
  std::vector<LogSum> blocks_;
};

}  // namespace trine
