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

TEST(Scheduler, Penalties_SendTheWindow) {
  Scheduler scheduler(Limits());
  Request request = MakeRequest(4, 3);
  request.prompt = {9, 5, 5, 6};
  request.sampling.repeat_penalty = 1.5;
  request.sampling.repeat_last_n = 3;
  ASSERT_TRUE(scheduler.Submit(std::move(request)).ok());
  const StepCommand& command = scheduler.Next();
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

// Sequences that lose their pages and are computed anew go on as if nothing had happened.
TEST(Job, PreemptedTexts_AreTheSame) {
  std::vector<Request> requests;
  for (int32_t i = 0; i < 8; ++i) {
    Request request = MakeRequest(30 + 7 * i % 20, 50);
    for (int32_t& token : request.prompt) token = (token + i) * 7 % 250 + 3;
    request.sampling = {.temperature = 1.2f, .seed = static_cast<uint64_t>(i)};
    requests.push_back(request);
  }
  for (const char* name : {"qwen3_q4_1", "qwen35_a_rot_pq2_0"}) {
    const SessionOptions options = TinyOptions(name);
    const Texts whole = RunRequests(options, 1, requests);
    for (const int ranks : {1, 2, 3}) {
      const Texts preempted = RunRequests(options, ranks, requests, /*pages=*/7);
      for (size_t i = 0; i < requests.size(); ++i) {
        const auto id = static_cast<int64_t>(i);
        EXPECT_EQ(Ids(preempted.at(id)), Ids(whole.at(id))) << name << " request " << i;
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

TEST(Job, ImpossibleRankCount_IsTheSameErrorOnEveryRank) {
  const Status status = RunJob(5, TinyOptions("llama3_bf16"), [](Session&) { FAIL(); });
  EXPECT_NE(status.message().find("attn_q: 4 query heads cannot be shared by 5 ranks; use 1 to 4"),
            std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace trine
