// What trine bench measured, and how it is printed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trine {

struct BenchTest {
  int64_t prompt = 0;    // tokens of prefill that are timed
  int64_t generate = 0;  // tokens of decode that are timed
  int64_t depth = 0;     // tokens in the context before
  int64_t batch = 1;     // tokens per step
  int64_t parallel = 1;  // sequences side by side, each with all of these

  // As llama-bench has it: "pp512", "tg128 @ d1024", "pp512+tg128"; "tg128 x8" of several
  // sequences.
  std::string Name() const;
  int64_t tokens() const { return parallel * (prompt + generate); }
  // No more than so many steps are timed.
  int64_t steps() const { return parallel * ((prompt + batch - 1) / batch + 1) + generate; }
};

struct BenchResult {
  BenchTest test;
  std::vector<double> samples;  // tokens per second of each repetition
  double mean = 0, stddev = 0;  // of the samples
  // Of pure decode, which reads every weight once a token: bytes of all ranks, as they are kept in
  // memory; the same bytes read plainly after each repetition, median; the median of each
  // repetition's ratio.
  std::optional<double> weight_gb_per_second, read_gb_per_second, read_fraction;
  // Shares of the time, mean over ranks. In collectives: after the last rank had entered, and
  // before; unknown where the ranks share no clock.
  std::optional<double> comm_fraction, wait_fraction;
  std::vector<std::pair<std::string, double>> split;  // adds up to 1
};

// What is the same for all tests of a run.
struct BenchSubject {
  std::string model, type, file, device, comm, compute, cache_type;
  int64_t bytes = 0, parameters = 0;  // of the file's tensors
  int np = 1, threads = 1;
};

// Prints to stdout as one of md, csv, json, jsonl and sql; rows as soon as the form allows.
class BenchReport {
 public:
  BenchReport(BenchSubject subject, std::string form);

  void Add(const BenchResult& result);
  void Finish();

 private:
  const BenchSubject subject_;
  const std::string form_;
  const std::string time_;  // UTC
  int64_t rows_ = 0;
  std::string footer_;
};

}  // namespace trine
