// trine bench: tokens per second of prefill (pp N: one prompt of N tokens) and of decode (tg N: N
// tokens, one after another), through the whole engine: broadcast, all ranks, choice of the token.
// Tokenising is not included. Columns as llama-bench has them.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "src/commands/commands.h"

namespace trine {
namespace {

struct Test {
  int64_t prompt = 0;    // tokens of prefill that count
  int64_t generate = 0;  // tokens of decode that count
  std::string Name() const {
    return prompt > 0 ? "pp" + std::to_string(prompt) : "tg" + std::to_string(generate);
  }
};

struct Measured {
  Test test;
  double mean = 0, stddev = 0;  // tokens per second
};

// A prompt of the same pseudo-random tokens every time.
std::vector<int32_t> TestPrompt(int64_t tokens, int64_t vocab) {
  std::vector<int32_t> prompt;
  uint64_t state = 1;
  for (int64_t i = 0; i < tokens; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    prompt.push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocab)));
  }
  return prompt;
}

// Seconds from the first step to the last. For decode the first token comes from the one-token
// prompt's step, so every step generates one.
Result<double> TimeOnce(Session& session, const Test& test) {
  Scheduler scheduler(session.scheduler_limits());
  Request request;
  request.prompt = TestPrompt(std::max<int64_t>(1, test.prompt), session.tokenizer().size());
  request.max_tokens = static_cast<int32_t>(std::max<int64_t>(1, test.generate));
  request.sampling.temperature = 0;
  TRINE_ASSIGN(const int64_t id, scheduler.Submit(std::move(request)));
  (void)id;
  const auto start = std::chrono::steady_clock::now();
  while (!scheduler.idle()) {
    for (const TokenEvent& event : session.Step(scheduler)) {
      if (event.finish != FinishReason::kFault) continue;
      return BadInput(test.Name() + ": a value was not finite or beyond 2^22; nothing to time");
    }
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Result<Measured> Measure(Session& session, const Test& test, int repetitions) {
  TRINE_ASSIGN(const double warm_up, TimeOnce(session, test));
  (void)warm_up;
  const auto tokens = static_cast<double>(test.prompt + test.generate);
  double sum = 0, squares = 0;
  for (int i = 0; i < repetitions; ++i) {
    TRINE_ASSIGN(const double seconds, TimeOnce(session, test));
    sum += tokens / seconds;
    squares += tokens / seconds * (tokens / seconds);
  }
  const double mean = sum / repetitions;
  const double variance = std::max(0.0, squares / repetitions - mean * mean);
  const double unbiased = repetitions > 1 ? variance * repetitions / (repetitions - 1) : 0;
  return Measured{test, mean, std::sqrt(unbiased)};
}

struct Row {
  std::string model, type, device, comm;
  double gib = 0, billions = 0;
  int np = 1, threads = 1;
};

Row Describe(const Session& session, const Ranks& ranks) {
  Row row;
  row.model = session.config().architecture;
  row.np = ranks.world.size;
  row.threads = session.backend().threads();
  row.device = session.backend().Describe();
  row.comm = std::string(ranks.comm.name());
  int64_t elements = 0, bytes = 0, largest = 0;
  for (const TensorInfo& tensor : session.store().tensors()) {
    elements += tensor.elements();
    bytes += tensor.bytes;
    if (tensor.name.ends_with("ffn_down.weight") && tensor.elements() > largest) {
      largest = tensor.elements();
      row.type = Info(tensor.type).name;
    }
  }
  row.gib = static_cast<double>(bytes) / (1 << 30);
  row.billions = static_cast<double>(elements) / 1e9;
  return row;
}

void PrintText(const Row& row, const std::vector<Measured>& results, bool csv) {
  const char* header =
      csv ? "model,type,size_gib,params_b,device,comm,np,test,tokens_per_second,stddev\n"
          : "| model | type | size | params | device | comm | np | test | t/s |\n"
            "| --- | --- | ---: | ---: | --- | --- | ---: | ---: | ---: |\n";
  std::fputs(header, stdout);
  for (const Measured& measured : results) {
    std::printf(csv ? "%s,%s,%.3f,%.3f,\"%s\",%s,%d,%s,%.3f,%.3f\n"
                    : "| %s | %s | %.2f GiB | %.2f B | %s | %s | %d | %s | %.2f ± %.2f |\n",
                row.model.c_str(), row.type.c_str(), row.gib, row.billions, row.device.c_str(),
                row.comm.c_str(), row.np, measured.test.Name().c_str(), measured.mean,
                measured.stddev);
  }
}

void PrintJson(const Row& row, const std::vector<Measured>& results) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Measured& measured : results) {
    list.push_back({{"model", row.model},
                    {"type", row.type},
                    {"np", row.np},
                    {"threads", row.threads},
                    {"device", row.device},
                    {"comm", row.comm},
                    {"test", measured.test.Name()},
                    {"tokens_per_second", measured.mean},
                    {"stddev", measured.stddev}});
  }
  std::printf("%s\n", list.dump(2).c_str());
}

Status RunTests(const Settings& settings, const Ranks& ranks, Session& session) {
  std::vector<Test> tests;
  for (const int64_t n : settings.bench_prompt) {
    if (n > 0) tests.push_back({n, 0});
  }
  for (const int64_t n : settings.bench_generate) {
    if (n > 0) tests.push_back({0, n});
  }
  std::vector<Measured> results;
  for (const Test& test : tests) {
    TRINE_ASSIGN(const Measured measured, Measure(session, test, settings.repetitions));
    results.push_back(measured);
  }
  const Row row = Describe(session, ranks);
  if (settings.output == "json") {
    PrintJson(row, results);
  } else {
    PrintText(row, results, /*csv=*/settings.output == "csv");
  }
  return {};
}

}  // namespace

Status BenchCommand(const Settings& settings, Ranks ranks) {
  TRINE_ASSIGN(const std::unique_ptr<Session> session,
               OpenSession(settings, ranks, /*sequences=*/1));
  return RunSession(ranks, *session, [&] { return RunTests(settings, ranks, *session); });
}

}  // namespace trine
