// Speed of what the engine does around the model, on one rank. Each round times both sides of a
// ratio in turn; medians of the rounds.
//
//   engine_bench MODEL chat [TOKENS]        the first token of a chat's second turn beside that of
//   its
//                                           first, whose prompt has TOKENS (2000) tokens
//   engine_bench MODEL guess TEXT [TOKENS]  decode with guesses (8 at most) beside decode without,
//   behind
//                                           the text of a file: TOKENS (200) greedy ones, and
//                                           sampled ones
//   engine_bench MODEL host [SEQUENCES]     what rank 0 does between steps, beside the step, with
//                                           SEQUENCES (16) decoding at 2,000 tokens of context
//
// TRINE_THREADS (2) and TRINE_ROUNDS (5) say how.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "src/engine/session.h"
#include "tests/bench/bench_tools.h"

namespace trine {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t Number(const char* variable, int64_t otherwise) {
  const char* value = std::getenv(variable);
  return value == nullptr ? otherwise : std::atoll(value);
}

std::vector<int32_t> RandomTokens(int64_t n, int64_t vocab, uint64_t seed) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) {
    const float noise = Noise(seed * 1000003 + static_cast<uint64_t>(i));
    tokens.push_back(static_cast<int32_t>((noise + 1) / 2 * static_cast<float>(vocab - 1)));
  }
  return tokens;
}

struct Run {
  std::vector<int32_t> reply;
  double first = 0;  // seconds to the first token
  double rest = 0;   // from there to the last
};

void SubmitOrEnd(Scheduler& scheduler, Request request) {
  const Result<int64_t> id = scheduler.Submit(std::move(request));
  if (!id.ok()) {
    std::puts(id.status().message().c_str());
    std::exit(1);
  }
}

Run RunOne(Session& session, Scheduler& scheduler, Request request) {
  Run run;
  const auto start = Clock::now();
  SubmitOrEnd(scheduler, std::move(request));
  while (!scheduler.idle()) {
    for (const TokenEvent& event : session.Step(scheduler)) {
      if (run.reply.empty()) run.first = SecondsSince(start);
      run.reply.push_back(event.token);
    }
  }
  run.rest = SecondsSince(start) - run.first;
  return run;
}

void Chat(Session& session, int64_t tokens, int64_t rounds) {
  const int64_t vocab = session.tokenizer().size();
  std::vector<double> ratios, firsts, seconds;
  for (int64_t round = 0; round < rounds; ++round) {
    Scheduler scheduler(session.scheduler_limits());
    Request request;
    request.prompt = RandomTokens(tokens, vocab, static_cast<uint64_t>(round));
    request.max_tokens = 50;
    request.sampling.temperature = 0;
    const Run first = RunOne(session, scheduler, request);
    request.prompt.insert(request.prompt.end(), first.reply.begin(), first.reply.end());
    const std::vector<int32_t> question = RandomTokens(30, vocab, 99);
    request.prompt.insert(request.prompt.end(), question.begin(), question.end());
    const Run second = RunOne(session, scheduler, request);
    firsts.push_back(first.first);
    seconds.push_back(second.first);
    ratios.push_back(second.first / first.first);
  }
  std::printf("first turn %.3f s, second turn %.3f s to the first token: %.2f %%\n", Median(firsts),
              Median(seconds), 100 * Median(ratios));
}

void Guess(Session& session, const std::string& path, int64_t tokens, int64_t rounds) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  const auto prompt = session.tokenizer().Encode(text.str(), Tokenizer::Special::kParse);
  if (!prompt.ok() || prompt->empty()) std::exit(std::puts("no text") > 0);
  for (const float temperature : {0.0f, 0.8f}) {
    std::vector<double> ratios, rates[2];
    int64_t guessed = 0, accepted = 0;
    for (int64_t round = 0; round < rounds; ++round) {
      std::vector<int32_t> replies[2];
      double seconds[2];
      for (const int with : {0, 1}) {
        SchedulerLimits limits = session.scheduler_limits();
        limits.drafts = with * limits.drafts;
        Scheduler scheduler(limits);
        Request request;
        request.prompt = *prompt;
        request.max_tokens = static_cast<int32_t>(tokens);
        request.sampling = {.temperature = temperature, .seed = static_cast<uint64_t>(round)};
        const Run run = RunOne(session, scheduler, request);
        replies[with] = run.reply;
        seconds[with] = run.rest;
        rates[with].push_back(static_cast<double>(tokens - 1) / run.rest);
        guessed += scheduler.guessed_tokens();
        accepted += scheduler.accepted_tokens();
      }
      if (replies[0] != replies[1]) std::exit(std::puts("the texts differ") > 0);
      ratios.push_back(seconds[0] / seconds[1]);
    }
    std::printf(
        "temperature %.1f: %.2f t/s, with guesses %.2f t/s: %.3f (%.3f to %.3f); %lld of %lld "
        "guesses right\n",
        static_cast<double>(temperature), Median(rates[0]), Median(rates[1]), Median(ratios),
        *std::ranges::min_element(ratios), *std::ranges::max_element(ratios),
        static_cast<long long>(accepted), static_cast<long long>(guessed));
  }
}

void Host(Session& session, int64_t sequences, int64_t rounds) {
  Scheduler scheduler(session.scheduler_limits());
  const int64_t steps = 30 * rounds;
  for (int64_t i = 0; i < sequences; ++i) {
    Request request;
    request.prompt = RandomTokens(2000, session.tokenizer().size(), static_cast<uint64_t>(i));
    request.max_tokens = static_cast<int32_t>(steps + 100);
    request.sampling.repeat_penalty = 1.1f;
    SubmitOrEnd(scheduler, std::move(request));
  }
  std::vector<TokenEvent> events;
  while (std::ssize(events) < sequences) {
    const auto all = session.Step(scheduler);
    events.assign(all.begin(), all.end());
  }
  std::vector<double> hosts, totals;
  for (int64_t i = 0; i < steps; ++i) {
    const auto start = Clock::now();
    const StepCommand& command = scheduler.Next();
    const double before = SecondsSince(start);
    const StepResult& result = session.Execute(command);
    const double executed = SecondsSince(start);
    scheduler.Complete(result.rows);
    scheduler.TakeEvents(events);
    totals.push_back(SecondsSince(start));
    hosts.push_back(before + totals.back() - executed);
  }
  std::printf("%lld sequences: %.1f us between steps, %.3f ms a step: %.3f %%\n",
              static_cast<long long>(sequences), 1e6 * Median(hosts), 1e3 * Median(totals),
              100 * Median(hosts) / Median(totals));
}

int Main(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[2] : "";
  const bool guess = what == "guess";
  if ((what != "chat" && what != "host" && !guess) || (guess && argc < 4)) {
    return std::puts("engine_bench MODEL chat [TOKENS] | guess TEXT [TOKENS] | host [SEQUENCES]") >
           0;
  }
  const int64_t number = argc > (guess ? 4 : 3) ? std::atoll(argv[guess ? 4 : 3])
                         : guess                ? 200
                         : what == "chat"       ? 2000
                                                : 16;
  const int64_t rounds = Number("TRINE_ROUNDS", 5);
  SessionOptions options;
  options.model = argv[1];
  options.threads = static_cast<int>(Number("TRINE_THREADS", 2));
  options.context = what == "chat" ? number + 200 : 4096;
  options.sequences = what == "host" ? number : 1;
  options.snapshots = what == "chat" ? 16 : 0;
  options.drafts = guess ? 8 : 0;
  const auto control = MakeSelfControl();
  const auto comm = MakeSelfCommunicator();
  const auto session = Session::Open(options, *control, *comm, {});
  if (!session.ok()) return std::printf("%s\n", session.status().message().c_str()) > 0;
  if (what == "chat") Chat(**session, number, rounds);
  if (what == "host") Host(**session, number, rounds);
  if (guess) Guess(**session, argv[3], number, rounds);
  return 0;
}

}  // namespace
}  // namespace trine

int main(int argc, char** argv) {
  return trine::Main(argc, argv);
}
