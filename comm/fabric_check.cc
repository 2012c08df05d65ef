#include "comm/fabric_check.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <span>

#include "comm/parts.h"
#include "comm/progress.h"
#include "comm/split_mix.h"

namespace trine {
namespace {

constexpr int64_t kWord = sizeof(uint64_t);
constexpr int64_t kSmallest = 1024;                                // bytes
constexpr int64_t kLatencyBytes = 16 << 10, kRateBytes = 1 << 20;  // what a line of text shows

// Beyond this a path is slow, in microseconds.
double Limit(int64_t bytes) {
  return 1000 + static_cast<double>(bytes) / 100;
}

// What one rank saw in one test. It travels as it lies in memory: the hosts of a job are alike.
struct Vote {
  double microseconds = 0, fastest = 0;
  int64_t element = -1;  // the first wrong one; -1: none
  uint64_t expected = 0, found = 0;
};

Element TypeOf(FabricOp op) {
  return op == FabricOp::kAllReduceFloat32 ? Element::kFloat32
         : op == FabricOp::kAllGather      ? Element::kByte
                                           : Element::kInt64;
}

// Two floats in +-[1, 2) of 64 random bits. They have one exponent, so each bit counts in their
// sum, and from three ranks on so does its order.
constexpr uint64_t kFractions = 0x807FFFFF'807FFFFFu, kOnes = 0x3F800000'3F800000u;

// Numbers of a rank's contribution to a collective, each another one.
class Pattern {
 public:
  Pattern(int rank, int64_t collective)
      : first_(SplitMix((static_cast<uint64_t>(collective) << 16) + static_cast<uint64_t>(rank))) {}

  void Write(Element type, std::span<uint64_t> words) const {
    for (size_t i = 0; i < words.size(); ++i) {
      const uint64_t word = SplitMix(first_ + i);
      words[i] = type == Element::kFloat32 ? (word & kFractions) | kOnes : word;
    }
  }

 private:
  const uint64_t first_;
};

// sum += term. Not SumInRankOrder, which is among what is checked.
void Add(std::span<const uint64_t> term, Element type, std::span<uint64_t> sum) {
  for (size_t i = 0; i < sum.size(); ++i) {
    if (type != Element::kFloat32) {
      sum[i] += term[i];  // wraps
      continue;
    }
    float a[2], b[2];
    std::memcpy(a, &sum[i], sizeof a);
    std::memcpy(b, &term[i], sizeof b);
    for (int j = 0; j < 2; ++j) a[j] += b[j];
    std::memcpy(&sum[i], a, sizeof a);
  }
}

// One rank's side of the tests of one path.
class Tester {
 public:
  Tester(Communicator& comm, ControlChannel& control, const FabricScope& scope)
      : comm_(comm), control_(control), rounds_(scope.rounds) {
    const auto words = static_cast<size_t>(scope.largest / kWord);
    for (auto* buffer : {&mine_, &all_, &term_, &expected_}) buffer->resize(words);
    counts_.resize(static_cast<size_t>(comm.world().size));
  }

  Vote Run(FabricOp op, int64_t bytes) {
    Vote vote;
    std::vector<double> times;
    for (int round = 0; round < rounds_; ++round) {
      ++collective_;
      Prepare(op, bytes);
      control_.Barrier();  // the time is not that of what another rank prepares
      const auto start = std::chrono::steady_clock::now();
      const std::byte* result = Perform(op, bytes);
      const std::chrono::duration<double, std::micro> time =
          std::chrono::steady_clock::now() - start;
      OwnProgress().Move();
      times.push_back(std::max(time.count(), 1e-3));  // a clock may stand still
      if (vote.element < 0) Compare(result, op, &vote);
    }
    std::ranges::sort(times);
    vote.fastest = times[0];
    vote.microseconds = times[static_cast<size_t>(rounds_ / 2)];
    return vote;
  }

 private:
  int rank() const { return comm_.world().rank; }
  int size() const { return comm_.world().size; }

  void Prepare(FabricOp op, int64_t bytes);
  void SplitUnevenly(int64_t count);
  const std::byte* Perform(FabricOp op, int64_t bytes);
  void Compare(const std::byte* result, FabricOp op, Vote* vote) const;

  Communicator& comm_;
  ControlChannel& control_;
  const int rounds_;
  int64_t collective_ = 0;
  std::vector<uint64_t> mine_, all_;  // what goes in; what a gather gives
  std::vector<uint64_t> term_, expected_;
  int64_t expected_begin_ = 0, expected_bytes_ = 0;  // of this rank's result, in expected_
  std::vector<int64_t> counts_;                      // in elements, one per rank
};

// Parts of 1, 2, 3, ... shares, another rank's the smallest each time.
void Tester::SplitUnevenly(int64_t count) {
  const int64_t ranks = size(), shares = ranks * (ranks + 1) / 2;
  int64_t left = count;
  for (int64_t i = 0; i < ranks; ++i) {
    const int64_t part = i + 1 == ranks ? left : count * (i + 1) / shares;
    counts_[static_cast<size_t>((i + collective_) % ranks)] = part;
    left -= part;
  }
}

// This rank's contribution, and what must come of those of all.
void Tester::Prepare(FabricOp op, int64_t bytes) {
  const auto words = static_cast<size_t>(bytes / kWord);
  const Element type = TypeOf(op);
  SplitUnevenly(bytes / ElementBytes(type));
  std::fill_n(expected_.begin(), words, 0);
  std::byte* part = reinterpret_cast<std::byte*>(expected_.data());
  for (int from = 0; from < size(); ++from) {
    std::span<uint64_t> term(term_.data(), words);
    Pattern(from, collective_).Write(type, term);
    if (from == rank()) std::ranges::copy(term, mine_.begin());
    if (op == FabricOp::kAllGather) {
      const int64_t count = counts_[static_cast<size_t>(from)];
      std::memcpy(part, term.data(), static_cast<size_t>(count));
      part += count;
    } else {
      Add(term, type, {expected_.data(), words});
    }
  }
  const bool scattered = op == FabricOp::kReduceScatter;
  expected_begin_ = scattered ? OffsetOf(counts_, rank()) * kWord : 0;
  expected_bytes_ = scattered ? counts_[static_cast<size_t>(rank())] * kWord : bytes;
}

// Where this rank's result lies.
const std::byte* Tester::Perform(FabricOp op, int64_t bytes) {
  const Element type = TypeOf(op);
  auto* mine = reinterpret_cast<std::byte*>(mine_.data());
  auto* all = reinterpret_cast<std::byte*>(all_.data());
  switch (op) {
    case FabricOp::kAllReduceInt64:
    case FabricOp::kAllReduceFloat32:
      comm_.AllReduceSum(mine, bytes / ElementBytes(type), type);
      return mine;
    case FabricOp::kAllGather:
      comm_.AllGather(mine, all, counts_, type);
      return all;
    case FabricOp::kReduceScatter:
      comm_.ReduceScatterSum(mine, all, counts_, type);
      return all;
  }
  return mine;
}

void Tester::Compare(const std::byte* result, FabricOp op, Vote* vote) const {
  const std::byte* expected =
      reinterpret_cast<const std::byte*>(expected_.data()) + expected_begin_;
  if (expected_bytes_ == 0) return;
  if (std::memcmp(result, expected, static_cast<size_t>(expected_bytes_)) == 0) return;
  const int64_t width = ElementBytes(TypeOf(op));
  const auto wrong = std::mismatch(result, result + expected_bytes_, expected).first - result;
  vote->element = wrong / width;
  const auto place = static_cast<size_t>(vote->element * width);
  std::memcpy(&vote->expected, expected + place, static_cast<size_t>(width));
  std::memcpy(&vote->found, result + place, static_cast<size_t>(width));
}

// "rank 1", "ranks 0 and 2", "every rank"
std::string RanksText(const std::vector<int>& ranks, int size) {
  if (std::ssize(ranks) == size && size > 1) return "every rank";
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

std::string WrongText(const FabricTest& test, const Vote& vote, const std::vector<int>& ranks,
                      int size) {
  const int digits = static_cast<int>(2 * ElementBytes(TypeOf(test.op)));
  char values[80];
  std::snprintf(values, sizeof values, "0x%0*llx in place of 0x%0*llx", digits,
                static_cast<unsigned long long>(vote.found), digits,
                static_cast<unsigned long long>(vote.expected));
  return std::string(FabricOpName(test.op)) + " of " + FabricSizeText(test.bytes) +
         " gives wrong data: element " + std::to_string(vote.element) + " is " + values + " on " +
         RanksText(ranks, size);
}

// What the ranks saw of one test, put together.
void Judge(std::span<const Vote> votes, FabricTest* test) {
  std::vector<int> wrong;
  double fastest = 0;
  for (size_t rank = 0; rank < votes.size(); ++rank) {
    test->microseconds = std::max(test->microseconds, votes[rank].microseconds);
    fastest = std::max(fastest, votes[rank].fastest);
    if (votes[rank].element >= 0) wrong.push_back(static_cast<int>(rank));
  }
  if (!wrong.empty()) {
    test->verdict = FabricVerdict::kWrong;
    test->reason = WrongText(*test, votes[static_cast<size_t>(wrong[0])], wrong,
                             static_cast<int>(votes.size()));
  } else if (fastest > Limit(test->bytes)) {
    char times[64];
    std::snprintf(times, sizeof times, " takes %.0f us at best, more than %.0f", fastest,
                  Limit(test->bytes));
    test->verdict = FabricVerdict::kSlow;
    test->reason =
        std::string(FabricOpName(test->op)) + " of " + FabricSizeText(test->bytes) + times;
  }
}

}  // namespace

const char* FabricOpName(FabricOp op) {
  static constexpr const char* kNames[kFabricOps] = {"all-reduce int64", "all-reduce f32",
                                                     "all-gather", "reduce-scatter"};
  return kNames[static_cast<size_t>(op)];
}

const char* FabricVerdictName(FabricVerdict verdict) {
  static constexpr const char* kNames[] = {"ok", "slow", "wrong"};
  return kNames[static_cast<size_t>(verdict)];
}

std::string FabricSizeText(int64_t bytes) {
  const bool mega = bytes >= 1 << 20;
  return std::to_string(mega ? bytes >> 20 : bytes >> 10) + (mega ? " MB" : " KB");
}

const FabricTest& FabricReport::worst() const {
  return *std::ranges::max_element(tests, {}, &FabricTest::verdict);
}

std::string FabricReport::Line() const {
  const FabricTest& worst_test = worst();
  char text[80];
  std::snprintf(text, sizeof text, " in %.0f ms", milliseconds);
  std::string line = path + ' ' + FabricVerdictName(worst_test.verdict) + text;
  for (const FabricTest& test : tests) {
    if (test.op != FabricOp::kAllReduceInt64) continue;
    const std::string size = FabricSizeText(test.bytes);
    if (test.bytes == kLatencyBytes) {
      std::snprintf(text, sizeof text, "%.0f us", test.microseconds);
      line += ", all-reduce of " + size + " in " + text;
    } else if (test.bytes == kRateBytes) {
      std::snprintf(text, sizeof text, "%.1f GB/s", test.gb_per_second());
      line += ", " + size + " at " + text;
    }
  }
  return worst_test.reason.empty() ? line : line + "; " + worst_test.reason;
}

FabricReport CheckFabric(Communicator& comm, ControlChannel& control, const FabricScope& scope) {
  OwnProgress().Enter(Phase::kFabric);
  const auto start = std::chrono::steady_clock::now();
  FabricReport report{std::string(comm.name()), {}};
  std::vector<Vote> mine;
  Tester tester(comm, control, scope);
  for (int64_t bytes = kSmallest; bytes <= scope.largest; bytes *= scope.factor) {
    for (int op = 0; op < kFabricOps; ++op) {
      FabricTest& test = report.tests.emplace_back();
      test.op = static_cast<FabricOp>(op);
      test.bytes = bytes;
      mine.push_back(tester.Run(test.op, bytes));
    }
  }
  const auto votes = std::as_bytes(std::span(mine));
  const std::vector<Bytes> all = control.AllGather(Bytes(votes.begin(), votes.end()));
  std::vector<Vote> of_test(all.size());
  for (size_t i = 0; i < report.tests.size(); ++i) {
    for (size_t rank = 0; rank < all.size(); ++rank) {
      std::memcpy(&of_test[rank], all[rank].data() + i * sizeof(Vote), sizeof(Vote));
    }
    Judge(of_test, &report.tests[i]);
  }
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  report.milliseconds = time.count();
  return report;
}

}  // namespace trine
