// trine bench: tokens per second of prefill (pp N: one prompt of N tokens) and of decode (tg N: N
// tokens, one after another), through the whole engine: broadcast, all ranks, choice of the token.
// Tokenising is not included. Options, columns and forms as llama-bench has them; beside them where
// the time goes, and for decode how fast the weights were read, against a plain read of the same
// bytes between the repetitions.
//
// All ranks go through the same tests. The engine and its collectives are timed by what stands
// before them (TimedBackend, TimedCommunicator).
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <span>

#include "src/commands/bench_report.h"
#include "src/commands/commands.h"
#include "src/engine/timed_backend.h"
#include "src/engine/timed_communicator.h"

namespace trine {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

template <typename T>
Bytes ToBytes(std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  return Bytes(bytes.begin(), bytes.end());
}

template <typename T>
std::vector<T> FromBytes(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// The prompt of the nth sequence: the same pseudo-random tokens every time.
std::vector<int32_t> TestPrompt(int64_t nth, int64_t tokens, int64_t vocab) {
  std::vector<int32_t> prompt;
  auto state = static_cast<uint64_t>(1 + nth);
  for (int64_t i = 0; i < tokens; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    prompt.push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocab)));
  }
  return prompt;
}

// The last step of a prefill generates a token as well. Where there is none that counts, a prompt
// of one token takes its place, so that every step of the decode generates one.
int64_t PromptTokens(const BenchTest& test) {
  return test.depth + std::max<int64_t>(1, test.prompt);
}
int64_t GeneratedTokens(const BenchTest& test) {
  return test.generate + (test.prompt > 0 ? 1 : 0);
}
int64_t ContextTokens(const BenchTest& test) {
  return PromptTokens(test) + GeneratedTokens(test);
}

// In llama-bench's order.
std::vector<BenchTest> ListTests(const Settings& settings) {
  std::vector<BenchTest> tests;
  for (const int64_t depth : settings.bench_depth) {
    for (const int64_t batch : settings.bench_batch) {
      for (const int64_t parallel : settings.bench_parallel) {
        for (const int64_t n : settings.bench_prompt) {
          if (n > 0) tests.push_back({n, 0, depth, batch, parallel});
        }
        for (const int64_t n : settings.bench_generate) {
          if (n > 0) tests.push_back({0, n, depth, batch, parallel});
        }
        for (const auto& [prompt, generate] : settings.bench_pairs) {
          tests.push_back({prompt, generate, depth, batch, parallel});
        }
      }
    }
  }
  return tests;
}

// Nanoseconds of a test's repetitions, mean over ranks. A rank's total is its own, so that what it
// timed lies within.
struct Account {
  double total = 0;
  std::array<double, kOpClassNames.size()> ops{};
  CollectiveTimes collectives;
};

// The tests on one rank. Every call is collective, and its results are rank 0's.
class Bench {
 public:
  Bench(Ranks ranks, Session& session, TimedBackend& backend, TimedCommunicator& comm)
      : ranks_(ranks), session_(session), backend_(backend), comm_(comm) {
    for (const auto& claims : session.plan().claims) {
      for (const Claim& claim : claims) {
        if (!claim.kernel.layout.empty()) weight_bytes_ += static_cast<double>(claim.resident);
      }
    }
  }

  Result<BenchResult> Measure(const BenchTest& test, int repetitions);

 private:
  Result<double> Run(const BenchTest& test);
  Status Step(Scheduler& scheduler, const BenchTest& test);
  void AddTimes(Account& account);
  double SecondsOfPlainRead();

  const Ranks ranks_;
  Session& session_;
  TimedBackend& backend_;
  TimedCommunicator& comm_;
  double run_seconds_ = 0;      // of the last timed run on this rank, its end with the others
  double weight_bytes_ = 0;     // of all ranks, as the backends keep them
  size_t notes_of_a_step_ = 0;  // at most, of collectives
};

Status Bench::Step(Scheduler& scheduler, const BenchTest& test) {
  for (const TokenEvent& event : session_.Step(scheduler)) {
    if (event.finish != FinishReason::kFault) continue;
    return BadInput(test.Name() + ": a value was not finite or beyond 2^22; nothing to time");
  }
  return {};
}

// Fills the context, then times the rest: seconds from the first step to the last.
Result<double> Bench::Run(const BenchTest& test) {
  Scheduler scheduler(session_.scheduler_limits());
  const int64_t batch = std::min(test.batch, session_.scheduler_limits().step_tokens);
  const Status filled = RunSession(ranks_, session_, [&]() -> Status {
    for (int64_t nth = 0; nth < test.parallel; ++nth) {
      Request request;
      request.prompt = TestPrompt(nth, PromptTokens(test), session_.tokenizer().size());
      request.max_tokens = static_cast<int32_t>(GeneratedTokens(test));
      request.sampling.temperature = 0;
      TRINE_RETURN_IF_ERROR(scheduler.Submit(std::move(request)).status());
    }
    for (int64_t left = test.depth; left > 0; left -= std::min(batch, left)) {
      scheduler.LimitStep(std::min(batch, left));
      TRINE_RETURN_IF_ERROR(Step(scheduler, test));
    }
    return {};
  });
  TRINE_RETURN_IF_ERROR(filled);
  scheduler.LimitStep(batch);
  backend_.Clear();
  comm_.Clear(notes_of_a_step_ * static_cast<size_t>(test.steps()));
  ranks_.control.Barrier();
  double seconds = 0;
  const auto start = Clock::now();
  const Status timed = RunSession(ranks_, session_, [&]() -> Status {
    while (!scheduler.idle()) TRINE_RETURN_IF_ERROR(Step(scheduler, test));
    seconds = SecondsSince(start);
    return {};
  });
  run_seconds_ = SecondsSince(start);
  TRINE_RETURN_IF_ERROR(timed);
  return seconds;
}

void Bench::AddTimes(Account& account) {
  const std::vector<Bytes> totals =
      ranks_.control.AllGather(ToBytes(std::span<const double>(&run_seconds_, 1)));
  const std::vector<Bytes> ops =
      ranks_.control.AllGather(ToBytes(std::span<const int64_t>(backend_.times())));
  const std::vector<Bytes> notes =
      ranks_.control.AllGather(ToBytes(std::span<const CollectiveNote>(comm_.notes())));
  const double ranks = ranks_.world.size;
  std::vector<std::vector<CollectiveNote>> by_rank;
  for (size_t rank = 0; rank < ops.size(); ++rank) {
    account.total += FromBytes<double>(totals[rank])[0] * 1e9 / ranks;
    const std::vector<int64_t> times = FromBytes<int64_t>(ops[rank]);
    for (size_t i = 0; i < times.size(); ++i) {
      account.ops[i] += static_cast<double>(times[i]) / ranks;
    }
    by_rank.push_back(FromBytes<CollectiveNote>(notes[rank]));
  }
  const CollectiveTimes times = SplitCollectives(by_rank);
  account.collectives.comm += times.comm;
  account.collectives.wait += times.wait;
}

// Every weight once, by all ranks at the same time: the slowest rank's seconds, median of several.
double Bench::SecondsOfPlainRead() {
  constexpr size_t kReads = 5;
  std::vector<double> mine(kReads), slowest(kReads);
  for (double& seconds : mine) {
    ranks_.control.Barrier();
    const auto start = Clock::now();
    backend_.ReadWeights();
    seconds = SecondsSince(start);
  }
  for (const Bytes& bytes : ranks_.control.AllGather(ToBytes(std::span<const double>(mine)))) {
    const std::vector<double> theirs = FromBytes<double>(bytes);
    for (size_t i = 0; i < kReads; ++i) slowest[i] = std::max(slowest[i], theirs[i]);
  }
  return Median(slowest);
}

double MeanOf(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double StandardDeviation(const std::vector<double>& values, double mean) {
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return values.size() < 2 ? 0 : std::sqrt(squares / static_cast<double>(values.size() - 1));
}

void AddShares(const Account& account, bool one_host, BenchResult& result) {
  const auto& [comm, wait] = account.collectives;
  if (one_host) {
    result.comm_fraction = comm / account.total;
    result.wait_fraction = wait / account.total;
  }
  double rest = account.total - comm - wait;
  for (size_t i = 0; i < account.ops.size(); ++i) {
    result.split.emplace_back(kOpClassNames[i], account.ops[i] / account.total);
    rest -= account.ops[i];
  }
  result.split.emplace_back("collectives", (comm + wait) / account.total);
  result.split.emplace_back("rest", rest / account.total);
}

Result<BenchResult> Bench::Measure(const BenchTest& test, int repetitions) {
  // The buffers grow to a step's size, the notes to as many as a step makes.
  const BenchTest warm_up{std::min(test.prompt, test.batch), std::min<int64_t>(test.generate, 1), 0,
                          test.batch, test.parallel};
  TRINE_RETURN_IF_ERROR(Run(warm_up).status());
  notes_of_a_step_ = std::max(notes_of_a_step_, comm_.notes().size());

  BenchResult result;
  result.test = test;
  Account account;
  std::vector<double> reads, fractions;
  const auto sequences = static_cast<double>(test.parallel);  // in every step of a decode
  for (int i = 0; i < repetitions; ++i) {
    TRINE_ASSIGN(const double seconds, Run(test));
    AddTimes(account);
    result.samples.push_back(static_cast<double>(test.tokens()) / seconds);
    if (test.prompt > 0) continue;
    reads.push_back(weight_bytes_ / SecondsOfPlainRead());
    fractions.push_back(weight_bytes_ * result.samples.back() / sequences / reads.back());
  }
  result.mean = MeanOf(result.samples);
  result.stddev = StandardDeviation(result.samples, result.mean);
  AddShares(account, ranks_.world.local_size == ranks_.world.size, result);
  if (test.prompt == 0) {
    result.weight_gb_per_second = weight_bytes_ * result.mean / sequences * 1e-9;
    result.read_gb_per_second = Median(reads) * 1e-9;
    result.read_fraction = Median(fractions);
  }
  return result;
}

BenchSubject Describe(const Settings& settings, const Session& session, const Ranks& ranks) {
  BenchSubject subject;
  subject.model = session.config().architecture;
  subject.file = session.store().name();
  subject.np = ranks.world.size;
  subject.threads = session.backend().threads();
  subject.device = session.backend().Describe();
  subject.comm = std::string(ranks.comm.name());
  subject.compute = settings.compute;
  subject.cache_type = settings.cache_type;
  int64_t largest = 0;
  for (const TensorInfo& tensor : session.store().tensors()) {
    subject.parameters += tensor.elements();
    subject.bytes += tensor.bytes;
    if (tensor.name.ends_with("ffn_down.weight") && tensor.elements() > largest) {
      largest = tensor.elements();
      subject.type = Info(tensor.type).name;
    }
  }
  return subject;
}

Status RunTests(const std::vector<BenchTest>& tests, int repetitions, Bench& bench,
                BenchReport* report) {
  for (const BenchTest& test : tests) {
    TRINE_ASSIGN(const BenchResult result, bench.Measure(test, repetitions));
    if (report != nullptr) report->Add(result);
  }
  if (report != nullptr) report->Finish();
  return {};
}

}  // namespace

Status BenchCommand(const Settings& settings, Ranks ranks) {
  const std::vector<BenchTest> tests = ListTests(settings);
  const BenchTest& longest = *std::max_element(
      tests.begin(), tests.end(),
      [](const auto& a, const auto& b) { return ContextTokens(a) < ContextTokens(b); });
  TimedCommunicator comm(ranks.comm);
  TimedBackend* backend = nullptr;
  TRINE_ASSIGN(
      const std::unique_ptr<Session> session,
      OpenSession(settings, {ranks.world, ranks.control, comm},
                  *std::ranges::max_element(settings.bench_parallel), [&](SessionOptions& options) {
                    if (options.context != 0) {  // as llama-bench, what the tests need
                      options.context = std::max(options.context, ContextTokens(longest));
                    }
                    options.step_tokens = *std::ranges::max_element(settings.bench_batch);
                    options.decorate = [&](std::unique_ptr<Backend> inner) {
                      auto timed = std::make_unique<TimedBackend>(std::move(inner));
                      backend = timed.get();
                      return timed;
                    };
                  }));
  if (ContextTokens(longest) > session->context()) {
    return BadInput(longest.Name() + " needs a context of " +
                    std::to_string(ContextTokens(longest)) +
                    " tokens, but the model was made for " + std::to_string(session->context()) +
                    "; ask for less");
  }
  Bench bench(ranks, *session, *backend, comm);
  BenchReport report(Describe(settings, *session, ranks), settings.output);
  return RunTests(tests, settings.repetitions, bench, ranks.world.rank == 0 ? &report : nullptr);
}

}  // namespace trine
