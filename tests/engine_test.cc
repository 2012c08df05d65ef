// The engine: its messages and the scheduler as pure functions, and whole jobs of threads over tiny
// models.
#include <gtest/gtest.h>

#include <cmath>

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
  command.changes = {{7, 2, -0.5}};
  command.rows[1].min_p = 0.25f;
  command.rows[1].target = 6;
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
  EXPECT_EQ(copy.rows[1].min_p, 0.25f);
  EXPECT_EQ(copy.rows[1].target, 6);
  ASSERT_EQ(copy.changes.size(), 1u);
  EXPECT_EQ(copy.changes[0].count, 2);
  EXPECT_EQ(copy.changes[0].bias, -0.5);
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

TEST(Scheduler, Penalties_SendTheWindow) {
  Scheduler scheduler(Limits());
  Request request = MakeRequest(4, 3);
  request.prompt = {9, 5, 5, 6};
  request.sampling.repeat_penalty = 1.5;
  request.sampling.repeat_last_n = 3;
  ASSERT_TRUE(scheduler.Submit(std::move(request)).ok());
  const StepCommand& command = scheduler.Next();
  ASSERT_EQ(command.changes.size(), 2u);
  EXPECT_EQ(command.changes[0].id, 5);
  EXPECT_EQ(command.changes[0].count, 2);
  EXPECT_EQ(command.changes[1].id, 6);
}

// ---- whole jobs

using Texts = std::map<int64_t, std::vector<TokenEvent>>;

// All requests together on `ranks` ranks; events by request. pages: of the KV cache that may be used,
// 0: all.
Texts RunRequests(const SessionOptions& options, int ranks, const std::vector<Request>& requests,
                  int64_t pages = 0) {
  Texts texts;
  const Status status = RunJob(ranks, options, [&](Session& session) {
    SchedulerLimits limits = session.scheduler_limits();
    if (pages > 0) limits.pages = pages;
    Scheduler scheduler(limits);
    for (const Request& request : requests) ASSERT_TRUE(scheduler.Submit(request).ok());
    while (!scheduler.idle()) {
      for (const TokenEvent& event : session.Step(scheduler)) {
        texts[event.request].push_back(event);
      }
    }
    EXPECT_EQ(scheduler.preemptions() > 0, pages > 0);
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

// One request for each set of sampling parameters, of one to three pages.
std::vector<Request> RequestsOf(const std::vector<SamplingParams>& samplings, int32_t generate) {
  std::vector<Request> requests;
  for (const SamplingParams& sampling : samplings) {
    const auto i = static_cast<int32_t>(requests.size());
    Request request = MakeRequest(5 + 11 * i % 40, generate);
    for (int32_t& token : request.prompt) token = (token + i) * 7 % 250 + 3;
    request.sampling = sampling;
    request.sampling.seed = static_cast<uint64_t>(i);
    request.stop = {5, 77, 1000};
    requests.push_back(std::move(request));
  }
  return requests;
}

// Every way that a row can take, with log-probabilities on every other request.
std::vector<SamplingParams> EveryFilter() {
  std::vector<SamplingParams> all;
  for (const int32_t top_k : {0, 1, 30}) {
    for (const float typical_p : {1.0f, 0.4f}) {
      for (const float top_p : {1.0f, 0.05f, 0.9f}) {
        for (const float min_p : {0.0f, 0.5f}) {
          SamplingParams params{.temperature = 1.5f,
                                .top_k = top_k,
                                .typical_p = typical_p,
                                .top_p = top_p,
                                .min_p = min_p};
          const auto n = static_cast<int32_t>(all.size());
          if (n % 2 == 0) params.top_logprobs = n % 7;
          if (n % 3 == 0) params.prompt_logprobs = n % 4;
          if (n % 4 == 0) params.repeat_penalty = 1.4f;
          if (n % 5 == 0) params.logit_bias = {{9, 8}, {70, -INFINITY}, {1500, 6}};
          if (n % 6 == 0) params.min_tokens = 6;
          params.choice = n % 3;
          all.push_back(params);
        }
      }
    }
  }
  all.push_back({.temperature = 0, .top_logprobs = 2});
  return all;
}

bool Same(const TokenLogprob& a, const TokenLogprob& b) {
  return a.id == b.id && a.logprob == b.logprob;
}
bool SameEvents(const std::vector<TokenEvent>& a, const std::vector<TokenEvent>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const TokenEvent& x, const TokenEvent& y) {
                      return x.token == y.token && x.finish == y.finish &&
                             Same(x.logprobs.token, y.logprobs.token) &&
                             std::equal(x.logprobs.top.begin(), x.logprobs.top.end(),
                                        y.logprobs.top.begin(), y.logprobs.top.end(), Same);
                    });
}

// Tokens and log-probabilities, those of the prompt too, at every rank count, in chunks and whole.
TEST(Job, EveryFilter_SameTokensAndLogprobs) {
  const std::vector<Request> requests = RequestsOf(EveryFilter(), 8);
  SessionOptions options = TinyOptions("qwen3_q4_1");
  const Texts chunked = RunRequests(options, 1, requests);
  for (const int ranks : {2, 3}) {
    const Texts sharded = RunRequests(options, ranks, requests);
    for (const auto& [id, events] : chunked) {
      EXPECT_TRUE(SameEvents(sharded.at(id), events)) << ranks << " ranks, request " << id;
    }
  }
  options.step_tokens = 200;
  options.logit_rows = 200;
  const Texts whole = RunRequests(options, 2, requests);
  for (const auto& [id, events] : chunked) {
    EXPECT_TRUE(SameEvents(whole.at(id), events)) << "request " << id;
  }
}

// Whether they are those of a row of logits, over the tokens that may be drawn.
void ExpectLogprobsOf(std::span<const float> logits, const Tokenizer& tokenizer,
                      const TokenLogprobs& logprobs) {
  long double sum = 0;
  std::vector<std::pair<float, int32_t>> sorted;
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    if (tokenizer.Type(id) == TokenType::kUnused) continue;
    sum += std::exp(static_cast<long double>(logits[static_cast<size_t>(id)]));
    sorted.emplace_back(-logits[static_cast<size_t>(id)], id);
  }
  std::sort(sorted.begin(), sorted.end());
  const auto expect = [&](const TokenLogprob& got) {
    const auto logprob = static_cast<double>(logits[static_cast<size_t>(got.id)] - std::log(sum));
    EXPECT_NEAR(got.logprob, logprob, 1e-7 * std::max(1.0, std::fabs(logprob)));
  };
  expect(logprobs.token);
  for (size_t i = 0; i < logprobs.top.size(); ++i) {
    EXPECT_EQ(logprobs.top[i].id, sorted[i].second);
    expect(logprobs.top[i]);
  }
}

// Whatever bias, penalties and filters do to the draw; of the prompt, one for each token but the
// first.
TEST(Job, Logprobs_AreTheLogSoftmaxOfTheLogits) {
  SamplingParams params{
      .temperature = 1.5f, .repeat_penalty = 2, .top_logprobs = 5, .prompt_logprobs = 3};
  params.logit_bias = {{40, 20}, {41, -INFINITY}};
  Request request = RequestsOf({params}, 12)[0];
  request.prompt = {3, 40, 41, 2000, 41, 40, 7, 8, 9, 10, 11, 12};
  for (const int ranks : {1, 3}) {
    const Status status = RunJob(ranks, TinyOptions("qwen3_q4_1"), [&](Session& session) {
      Scheduler scheduler(session.scheduler_limits());
      ASSERT_TRUE(scheduler.Submit(request).ok());
      std::vector<int32_t> scored;
      size_t generated = 0;
      while (!scheduler.idle()) {
        std::vector<float> logits;
        const auto keep = [&](const TokenEvent&, std::span<const float> row) {
          logits.insert(logits.end(), row.begin(), row.end());
        };
        const std::span<const TokenEvent> events = session.Step(scheduler, keep);
        const auto vocab = static_cast<size_t>(session.config().vocab);
        ASSERT_EQ(logits.size(), events.size() * vocab);
        for (size_t i = 0; i < events.size(); ++i) {
          const TokenLogprobs& logprobs = events[i].logprobs;
          ExpectLogprobsOf(std::span(logits).subspan(i * vocab, vocab), session.tokenizer(),
                           logprobs);
          if (events[i].token < 0) scored.push_back(logprobs.token.id);
          if (events[i].token < 0) continue;
          ++generated;
          EXPECT_EQ(logprobs.token.id, events[i].token);
          EXPECT_EQ(logprobs.top.size(), 5u);
        }
      }
      EXPECT_EQ(scored, std::vector(request.prompt.begin() + 1, request.prompt.end()));
      EXPECT_EQ(generated, 12u);
    });
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

// Of a flat distribution 0.9 takes more tokens than the first round brings, 0.001 fewer.
TEST(Job, WideTopP_TakesTheSecondRound) {
  const SamplingParams wide{.temperature = 1, .top_k = 0, .top_p = 0.9f, .min_p = 0};
  SamplingParams narrow = wide;
  narrow.top_p = 0.001f;
  const std::vector<Request> requests = RequestsOf({wide, narrow, wide}, 5);
  for (const int ranks : {1, 2, 3}) {
    const Status status = RunJob(ranks, TinyOptions("qwen3_q4_1"), [&](Session& session) {
      Scheduler scheduler(session.scheduler_limits());
      for (const Request& request : requests) ASSERT_TRUE(scheduler.Submit(request).ok());
      int64_t rounds[2] = {};
      while (!scheduler.idle()) {
        const StepCommand command = scheduler.Next();
        const StepResult& result = session.Execute(command);
        for (size_t i = 0; i < command.rows.size(); ++i) {
          const bool is_wide = command.rows[i].top_p > 0.5f;
          const size_t count = result.rows[i].candidates.size();
          EXPECT_TRUE(is_wide ? count > 2000 : count == 256) << count;
          ++rounds[is_wide ? 1 : 0];
        }
        scheduler.Complete(result.rows);
      }
      EXPECT_EQ(rounds[0], 5);
      EXPECT_EQ(rounds[1], 10);
    });
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(Job, Choices_DrawOnTheirOwn) {
  std::vector<Request> requests = RequestsOf({{.temperature = 2}, {.temperature = 2}}, 10);
  requests[1] = requests[0];
  requests[1].sampling.choice = 1;
  requests.push_back(requests[1]);
  const Texts texts = RunRequests(TinyOptions("qwen3_q4_1"), 2, requests);
  EXPECT_NE(Ids(texts.at(0)), Ids(texts.at(1)));
  EXPECT_EQ(Ids(texts.at(1)), Ids(texts.at(2)));
}

// A prompt that is to be scored is computed, though its pages are there.
TEST(Job, CachedPrompt_IsScoredAsIfNew) {
  Request plain = MakeRequest(100, 3);
  for (int32_t& token : plain.prompt) token += 50;
  Request scored = plain;
  scored.sampling.prompt_logprobs = 1;
  for (const char* name : {"qwen3_q4_1", "qwen35_a_rot_ptq1_0"}) {
    SessionOptions options = TinyOptions(name);
    options.snapshots = 8;
    const Texts alone = RunRequests(options, 2, {scored});
    EXPECT_EQ(alone.at(0).size(), 99u + 3);
    const Status status = RunJob(2, options, [&](Session& session) {
      Scheduler scheduler(session.scheduler_limits());
      for (const Request& request : {plain, scored, plain}) {
        const Result<int64_t> id = scheduler.Submit(request);
        std::vector<TokenEvent> events;
        while (!scheduler.idle()) {
          for (const TokenEvent& event : session.Step(scheduler)) events.push_back(event);
        }
        EXPECT_EQ(SameEvents(events, alone.at(0)), *id == 1) << name;
        EXPECT_EQ(scheduler.cached_tokens(), *id < 2 ? 0 : 96) << name;
      }
    });
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

// Sequences that lose their pages and are computed anew go on as if nothing had happened.
TEST(Job, PreemptedTexts_AreTheSame) {
  std::vector<Request> requests;
  for (int32_t i = 0; i < 8; ++i) {
    Request request = MakeRequest(30 + 7 * i % 20, 50);
    for (int32_t& token : request.prompt) token = (token + i) * 7 % 250 + 3;
    request.sampling = {.temperature = 1.2f, .seed = static_cast<uint64_t>(i)};
    if (i % 2 == 0) request.sampling.prompt_logprobs = 2;
    requests.push_back(request);
  }
  for (const char* name : {"qwen3_q4_1", "qwen35_a_rot_pq2_0"}) {
    const SessionOptions options = TinyOptions(name);
    const Texts whole = RunRequests(options, 1, requests);
    for (const int ranks : {1, 2, 3}) {
      const Texts preempted = RunRequests(options, ranks, requests, /*pages=*/7);
      for (size_t i = 0; i < requests.size(); ++i) {
        const auto id = static_cast<int64_t>(i);
        EXPECT_TRUE(SameEvents(preempted.at(id), whole.at(id))) << name << " request " << i;
      }
    }
  }
}

// Tokens and the raw logits they were drawn from.
struct Reply {
  std::vector<int32_t> ids;
  std::vector<float> logits;
  bool operator==(const Reply&) const = default;
};

// One request after the other in one session; how many tokens did not have to be computed.
std::vector<Reply> InTurn(const SessionOptions& options, int ranks,
                           const std::vector<Request>& requests, int64_t* cached) {
  std::vector<Reply> all(requests.size());
  const Status status = RunJob(ranks, options, [&](Session& session) {
    Scheduler scheduler(session.scheduler_limits());
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(scheduler.Submit(requests[i]).ok());
      while (!scheduler.idle()) {
        const auto keep = [&](const TokenEvent&, std::span<const float> logits) {
          all[i].logits.insert(all[i].logits.end(), logits.begin(), logits.end());
        };
        for (const TokenEvent& event : session.Step(scheduler, keep)) {
          all[i].ids.push_back(event.token);
        }
      }
    }
    *cached = scheduler.cached_tokens();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return all;
}

// Turns of a chat, each with the whole text so far, and other beginnings between them: with what is
// left of earlier turns in the cache, and without.
TEST(Job, CachedBeginnings_SameBits) {
  std::vector<Request> requests;
  for (int32_t turn = 0; turn < 3; ++turn) {
    for (const int32_t chat : {0, 1}) {
      Request request = MakeRequest(40 + 25 * turn, 6);
      for (int32_t& token : request.prompt) token = (token * 7 + chat) % 250 + 3;
      request.sampling = {.temperature = 1.2f, .seed = static_cast<uint64_t>(turn)};
      requests.push_back(request);
    }
  }
  for (const char* name : {"qwen3_q4_1", "qwen35_a_rot_ptq1_0"}) {
    SessionOptions options = TinyOptions(name);
    options.snapshots = 8;
    std::vector<Reply> alone;
    for (const Request& request : requests) {
      int64_t cached = 0;
      alone.push_back(InTurn(options, 1, {request}, &cached)[0]);
      EXPECT_EQ(cached, 0);
    }
    for (const int ranks : {1, 2, 3}) {
      int64_t cached = 0;
      EXPECT_EQ(InTurn(options, ranks, requests, &cached), alone) << name << " " << ranks;
      EXPECT_EQ(cached, 2 * (32 + 64)) << name;
    }
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

// Scores of the tokens before a faulty one do not vouch for their page.
TEST(Job, FaultyPrompt_IsNotKept) {
  const std::string path = testing::TempDir() + "/trine_engine_test.gguf";
  std::ofstream(path, std::ios::binary) << WithoutRow50(DataPath("tiny/llama_f32.gguf"));
  SessionOptions options = TinyOptions("llama_f32");
  options.model = path;
  options.step_tokens = options.logit_rows = 64;
  Request request = MakeRequest(60, 8);
  for (int32_t& token : request.prompt) token += 100;
  request.prompt[5] = 50;
  const Status status = RunJob(2, options, [&](Session& session) {
    Scheduler scheduler(session.scheduler_limits());
    for (const int32_t prompt_logprobs : {0, -1}) {
      request.sampling.prompt_logprobs = prompt_logprobs;
      ASSERT_TRUE(scheduler.Submit(request).ok());
      const std::span<const TokenEvent> events = session.Step(scheduler);
      EXPECT_EQ(events.size(), prompt_logprobs < 0 ? 1u : 6u);
      EXPECT_EQ(events.back().finish, FinishReason::kFault);
      EXPECT_TRUE(scheduler.idle());
      EXPECT_EQ(scheduler.cached_tokens(), 0);
    }
  });
  EXPECT_TRUE(status.ok()) << status.message();
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
