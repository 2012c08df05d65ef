// The engine: scheduler and sampler as pure functions, and whole jobs of threads over tiny models.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "src/engine/sampler.h"
#include "src/engine/scheduler.h"
#include "src/engine/step_command.h"
#include "tests/fixtures.h"
#include "tests/job.h"

namespace trine {
namespace {

// ---- messages

TEST(StepCommand, RoundTrip_KeepsEverything) {
  StepCommand command;
  command.sequences = {{1, 0, 3, 1}, {0, 64, 1, 0}};
  command.tokens = {5, 6, 7, 8};
  command.new_pages = {9};
  command.rows = {{2, 1, {}}, {3, 0, {}}};
  command.rows[0].spec.temperature = 0.5f;
  command.rows[1].spec.count = 40;
  command.windows = {{7, 2}};
  command.gather_logits = true;
  Bytes message;
  Encode(command, message);
  StepCommand copy;
  Decode(message, copy);
  EXPECT_EQ(copy.tokens, command.tokens);
  EXPECT_EQ(copy.new_pages, command.new_pages);
  ASSERT_EQ(copy.sequences.size(), 2u);
  EXPECT_EQ(copy.sequences[1].first_position, 64);
  EXPECT_EQ(copy.rows[0].spec.temperature, 0.5f);
  EXPECT_EQ(copy.rows[1].spec.count, 40);
  EXPECT_EQ(copy.windows[0].count, 2);
  EXPECT_TRUE(copy.gather_logits);
  EXPECT_FALSE(copy.stop());
  Encode(StepCommand{}, message);
  Decode(message, copy);
  EXPECT_TRUE(copy.stop());
}

// ---- scheduler

SchedulerLimits Limits() {
  return {
      .context = 128, .made_for = 1000, .sequences = 2, .step_tokens = 8, .pages = 8, .vocab = 100};
}

Request MakeRequest(int32_t prompt, int32_t generate) {
  Request request;
  for (int32_t i = 0; i < prompt; ++i) request.prompt.push_back(i);
  request.max_tokens = generate;
  request.sampling.temperature = 0;
  return request;
}

// Completes a step with token 42 for every row.
std::vector<TokenEvent> CompleteAll(Scheduler& scheduler, const StepCommand& command) {
  static const Candidate kCandidate{42, 1.0f, 1.0f};
  const std::vector<Scheduler::RowResult> rows(command.rows.size(), {{&kCandidate, 1}, false});
  return scheduler.Complete(rows);
}

TEST(Scheduler, LimitStep_HoldsUntilTheNext) {
  Scheduler scheduler(Limits());
  ASSERT_TRUE(scheduler.Submit(MakeRequest(20, 1)).ok());
  std::vector<size_t> tokens;
  for (const int64_t limit : {5, 5, 3, 8}) {
    scheduler.LimitStep(limit);
    const StepCommand command = scheduler.Next();
    tokens.push_back(command.tokens.size());
    CompleteAll(scheduler, command);
  }
  EXPECT_EQ(tokens, (std::vector<size_t>{5, 5, 3, 7}));
  EXPECT_TRUE(scheduler.idle());
}

TEST(Scheduler, LongPrompt_IsPrefilledInChunksThenDecoded) {
  Scheduler scheduler(Limits());
  ASSERT_TRUE(scheduler.Submit(MakeRequest(19, 2)).ok());
  std::vector<size_t> tokens, rows;
  std::vector<TokenEvent> events;
  while (!scheduler.idle()) {
    const StepCommand command = scheduler.Next();
    tokens.push_back(command.tokens.size());
    rows.push_back(command.rows.size());
    for (const TokenEvent& event : CompleteAll(scheduler, command)) events.push_back(event);
  }
  EXPECT_EQ(tokens, (std::vector<size_t>{8, 8, 3, 1}));
  EXPECT_EQ(rows, (std::vector<size_t>{0, 0, 1, 1}));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].finish, FinishReason::kLength);
}

TEST(Scheduler, DecodeAndPrefill_ShareAStep) {
  Scheduler scheduler(Limits());
  ASSERT_TRUE(scheduler.Submit(MakeRequest(3, 10)).ok());
  CompleteAll(scheduler, scheduler.Next());
  ASSERT_TRUE(scheduler.Submit(MakeRequest(20, 1)).ok());
  const StepCommand command = scheduler.Next();
  ASSERT_EQ(command.sequences.size(), 2u);
  EXPECT_EQ(command.sequences[0].tokens, 1);
  EXPECT_EQ(command.sequences[0].first_position, 3);
  EXPECT_EQ(command.sequences[1].tokens, 7);
  EXPECT_NE(command.sequences[0].slot, command.sequences[1].slot);
  EXPECT_EQ(command.rows.size(), 1u);
}

TEST(Scheduler, PagesRunOut_LaterRequestsWait) {
  Scheduler scheduler(Limits());                             // 8 pages of 32 tokens
  ASSERT_TRUE(scheduler.Submit(MakeRequest(100, 28)).ok());  // 4 pages
  ASSERT_TRUE(scheduler.Submit(MakeRequest(100, 28)).ok());  // 4 pages
  ASSERT_TRUE(scheduler.Submit(MakeRequest(1, 1)).ok());     // no slot until one ends
  std::vector<int64_t> finished;
  int steps = 0;
  for (; !scheduler.idle() && steps < 1000; ++steps) {
    const StepCommand command = scheduler.Next();
    EXPECT_LE(command.sequences.size(), 2u);
    for (const TokenEvent& event : CompleteAll(scheduler, command)) {
      if (event.finish != FinishReason::kNone) finished.push_back(event.request);
    }
  }
  EXPECT_EQ(finished.size(), 3u);
  EXPECT_LT(steps, 1000);
}

TEST(Scheduler, ManyRequests_NeverShareAPage) {
  Scheduler scheduler({.context = 64, .sequences = 5, .step_tokens = 33, .pages = 9, .vocab = 10});
  for (int i = 0; i < 60; ++i)
    ASSERT_TRUE(scheduler.Submit(MakeRequest(1 + i % 40, 1 + i % 23)).ok());
  std::vector<std::vector<int32_t>> pages(5);
  while (!scheduler.idle()) {
    const StepCommand command = scheduler.Next();
    auto page = command.new_pages.begin();
    for (const SequenceStep& step : command.sequences) {
      auto& mine = pages[static_cast<size_t>(step.slot)];
      if (step.first_position == 0) mine.clear();
      mine.insert(mine.end(), page, page + step.new_pages);
      page += step.new_pages;
      EXPECT_EQ(std::ssize(mine), PagesFor(step.first_position + step.tokens));
    }
    std::set<int32_t> used;
    size_t owned = 0;
    for (const SequenceStep& step : command.sequences) {
      const auto& mine = pages[static_cast<size_t>(step.slot)];
      used.insert(mine.begin(), mine.end());
      owned += mine.size();
    }
    EXPECT_EQ(used.size(), owned);
    CompleteAll(scheduler, command);
  }
}

TEST(Scheduler, ImpossibleRequests_AreRefusedWithTheNumbers) {
  Scheduler scheduler(Limits());
  EXPECT_EQ(scheduler.Submit(MakeRequest(120, 20)).status().message(),
            "the prompt has 120 tokens and 20 are to follow, but the context holds 128; use a "
            "larger --ctx-size");
  Scheduler small({.context = 128, .sequences = 1, .step_tokens = 8, .pages = 2, .vocab = 10});
  EXPECT_EQ(small.Submit(MakeRequest(60, 20)).status().message(),
            "the request needs 3 KV pages of 32 tokens, the cache has 2; ask for fewer tokens");
}

TEST(Scheduler, StopToken_EndsTheSequence) {
  Scheduler scheduler(Limits());
  Request request = MakeRequest(2, 50);
  request.stop = {7, 42};
  ASSERT_TRUE(scheduler.Submit(std::move(request)).ok());
  const auto events = CompleteAll(scheduler, scheduler.Next());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].finish, FinishReason::kStop);
  EXPECT_TRUE(scheduler.idle());
}

TEST(Scheduler, Penalties_SendTheWindow) {
  Scheduler scheduler(Limits());
  Request request = MakeRequest(4, 3);
  request.prompt = {9, 5, 5, 6};
  request.sampling.repeat_penalty = 1.5;
  request.sampling.repeat_last_n = 3;
  ASSERT_TRUE(scheduler.Submit(std::move(request)).ok());
  const StepCommand command = scheduler.Next();
  ASSERT_EQ(command.windows.size(), 2u);
  EXPECT_EQ(command.windows[0].id, 5);
  EXPECT_EQ(command.windows[0].count, 2);
  EXPECT_EQ(command.windows[1].id, 6);
}

// ---- sampler

std::vector<Candidate> Ranked(std::initializer_list<float> logits) {
  std::vector<Candidate> candidates;
  for (const float logit : logits) {
    candidates.push_back({static_cast<int32_t>(candidates.size()), logit, logit});
  }
  return candidates;
}

std::set<int32_t> Drawn(const std::vector<Candidate>& candidates, SamplingParams params) {
  std::set<int32_t> ids;
  for (int32_t position = 0; position < 3000; ++position) {
    ids.insert(PickToken(candidates, params, position));
  }
  return ids;
}

TEST(Sampler, Filters_KeepExactlyTheirSet) {
  // Probabilities: 0.5, 0.25, 0.125, 0.0625, 0.0625.
  const auto candidates = Ranked({0, -0.6931472f, -1.3862944f, -2.0794415f, -2.0794415f});
  SamplingParams params{.temperature = 1, .top_k = 5, .top_p = 1, .min_p = 0};
  EXPECT_EQ(Drawn(candidates, params), (std::set<int32_t>{0, 1, 2, 3, 4}));
  params.top_p = 0.7f;  // 0.5 + 0.25 reaches it
  EXPECT_EQ(Drawn(candidates, params), (std::set<int32_t>{0, 1}));
  params.top_p = 0.1f;  // never fewer than one
  EXPECT_EQ(Drawn(candidates, params), (std::set<int32_t>{0}));
  params.top_p = 1;
  params.min_p = 0.2f;  // of the best: at least 0.1
  EXPECT_EQ(Drawn(candidates, params), (std::set<int32_t>{0, 1, 2}));
  params.temperature = 0;
  EXPECT_EQ(Drawn(candidates, params), (std::set<int32_t>{0}));
}

TEST(Sampler, CandidateCount_IsWhatThePickNeeds) {
  const auto spec = [](SamplingParams params) { return MakeCandidateSpec(params, 0, 5000); };
  EXPECT_EQ(spec({.temperature = 0}).count, 1);
  EXPECT_EQ(spec({.temperature = 1, .top_k = 40}).count, 40);
  EXPECT_EQ(spec({.temperature = 1, .top_k = 9000}).count, 5000);
  EXPECT_EQ(spec({.temperature = 1, .top_k = 0, .top_p = 0.9f}).count, 5000);
  const CandidateSpec draw = spec({.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0});
  EXPECT_EQ(draw.count, 1);
  EXPECT_TRUE(draw.perturb);
}

// Frequencies of a draw from the kept set against softmax(logit / T): 40,000 draws, each within 5
// standard deviations (0.0125).
TEST(Sampler, TemperatureDraw_FollowsTheSoftmax) {
  const auto candidates = Ranked({2, 1, 0});
  const SamplingParams params{.temperature = 2, .top_k = 3, .top_p = 1, .min_p = 0, .seed = 3};
  int counts[3] = {};
  for (int32_t position = 0; position < 40000; ++position) {
    ++counts[PickToken(candidates, params, position)];
  }
  const double total = 1 + std::exp(-0.5) + std::exp(-1.0);
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(counts[i] / 40000.0, std::exp(-0.5 * i) / total, 0.0125);
}

// ---- whole jobs

SessionOptions TinyOptions(const std::string& name) {
  SessionOptions options;
  options.model = DataPath("tiny/" + name + ".gguf");
  options.sequences = 4;
  options.step_tokens = 16;
  return options;
}

using Texts = std::map<int64_t, std::vector<TokenEvent>>;

// All requests together on `ranks` ranks; events by request.
Texts RunRequests(const SessionOptions& options, int ranks, const std::vector<Request>& requests) {
  Texts texts;
  const Status status = RunJob(ranks, options, [&](Session& session) {
    Scheduler scheduler(session.scheduler_limits());
    for (const Request& request : requests) ASSERT_TRUE(scheduler.Submit(request).ok());
    while (!scheduler.idle()) {
      for (const TokenEvent& event : session.Step(scheduler)) {
        texts[event.request].push_back(event);
      }
    }
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return texts;
}

std::vector<int32_t> Ids(const std::vector<TokenEvent>& events) {
  std::vector<int32_t> ids;
  for (const TokenEvent& event : events) ids.push_back(event.token);
  return ids;
}

TEST(Job, SampledTexts_DependOnTheirSeedAlone) {
  std::vector<Request> requests;
  const SamplingParams samplings[] = {
      {.temperature = 0},
      {.temperature = 1.5f, .seed = 1},
      {.temperature = 1.5f, .seed = 2},
      {.temperature = 2, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 3},
      {.temperature = 2, .top_k = 0, .top_p = 0.9f, .min_p = 0, .seed = 3},
      {.temperature = 1,
       .repeat_penalty = 1.3f,
       .presence_penalty = 0.5f,
       .frequency_penalty = 0.1f,
       .seed = 4}};
  for (int32_t i = 0; i < 12; ++i) {  // of one to three pages, so that slots and pages change hands
    Request request = MakeRequest(5 + 11 * i % 40, 20 + 13 * i % 30);
    for (int32_t& token : request.prompt) token = (token + i) * 7 % 250 + 3;
    request.sampling = samplings[i % 6];
    requests.push_back(request);
  }
  for (const char* name : {"qwen3_q4_1", "llama_f32"}) {
    const SessionOptions options = TinyOptions(name);
    const Texts together = RunRequests(options, 1, requests);
    for (const int ranks : {2, 3}) {
      const Texts sharded = RunRequests(options, ranks, requests);
      for (size_t i = 0; i < requests.size(); ++i) {
        const auto id = static_cast<int64_t>(i);
        EXPECT_EQ(Ids(sharded.at(id)), Ids(together.at(id))) << name << " request " << i;
      }
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      const Texts alone = RunRequests(options, 2, {requests[i]});
      EXPECT_EQ(Ids(alone.at(0)), Ids(together.at(static_cast<int64_t>(i)))) << name << i;
    }
    EXPECT_NE(Ids(together.at(1)), Ids(together.at(2)));
  }
}

// A row of the embedding that is not a number ends the request that uses it, and no other.
TEST(Job, ValueOutOfRange_EndsItsRequestOnly) {
  const std::string bytes = WithoutRow50(DataPath("tiny/llama_f32.gguf"));
  const std::string path = testing::TempDir() + "/trine_engine_test.gguf";
  std::ofstream(path, std::ios::binary) << bytes;
  SessionOptions options = TinyOptions("llama_f32");
  options.model = path;
  Request good = MakeRequest(20, 8), bad = MakeRequest(40, 8);
  for (int32_t& token : good.prompt) token += 100;
  bad.prompt[5] = 50;  // in the first of three chunks
  for (const int ranks : {1, 3}) {
    const Texts texts = RunRequests(options, ranks, {good, bad, good});
    ASSERT_EQ(texts.at(1).size(), 1u);
    EXPECT_EQ(texts.at(1)[0].finish, FinishReason::kFault);
    EXPECT_EQ(texts.at(0).size(), 8u);
    EXPECT_EQ(Ids(texts.at(0)), Ids(RunRequests(options, 1, {good}).at(0)));
    EXPECT_EQ(Ids(texts.at(0)), Ids(texts.at(2)));
  }
  std::remove(path.c_str());
}

TEST(Job, ImpossibleRankCount_IsTheSameErrorOnEveryRank) {
  const Status status = RunJob(5, TinyOptions("llama3_bf16"), [](Session&) { FAIL(); });
  EXPECT_NE(status.message().find("attn_q: 4 query heads cannot be shared by 5 ranks; use 1 to 4"),
            std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace trine
