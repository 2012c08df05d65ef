// A request gives the same tokens and the same logits, to the bit, whatever the engine does with
// it: alone or among sixteen, its prompt in pieces, preempted and computed anew, its beginning from
// the cache, with guesses computed beside its tokens; on one, two and three ranks.
#include <gtest/gtest.h>

#include <optional>

#include "tests/job.h"

namespace trine {
namespace {

// Tokens and the raw logits they were sampled from.
struct Reply {
  std::vector<int32_t> ids;
  std::vector<float> logits;
  bool operator==(const Reply&) const = default;
};

struct Outcome {
  std::vector<Reply> replies;
  int64_t preempted = 0, cached = 0, guessed = 0, accepted = 0;
};

constexpr int32_t kGenerate = 14, kRepetitive = 60;

// Sixteen prompts of 5 to 80 tokens. Every fourth repeats itself, so that guesses are made; the
// others come in pairs that begin alike. Sampled in several ways.
std::vector<Request> Requests() {
  // Of three tokens alone, so that a tiny model repeats itself too.
  const SamplingParams samplings[] = {
      {.temperature = 0.5f, .logit_bias = {{10, 100}, {11, 100}, {12, 100}}, .seed = 1},
      {.temperature = 0.9f, .seed = 3},
      {.temperature = 0, .repeat_penalty = 1.2f},
      {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0}};
  std::vector<Request> requests;
  for (int32_t i = 0; i < 16; ++i) {
    Request request;
    for (int32_t t = 0; t < 5 + 5 * i; ++t) {
      request.prompt.push_back(3 + (i % 4 == 0 ? t % 5 : (t * t + 7 * t * (i / 2)) % 240));
    }
    request.prompt.back() += i % 2;
    request.sampling = samplings[i / 4];
    request.max_tokens = i < 4 ? kRepetitive : kGenerate;
    request.client = i % 3;
    requests.push_back(request);
  }
  return requests;
}

struct Setting {
  const char* name;
  int64_t sequences = 16, step_tokens = 256, pages = 0, drafts = 0;
  int passes = 1;      // all requests again; the last pass counts
  bool apart = false;  // one after another, each with an empty cache
};

Outcome RunAll(SessionOptions options, int ranks, const Setting& setting,
               const std::vector<Request>& requests) {
  options.sequences = setting.sequences;
  options.step_tokens = setting.step_tokens;
  options.drafts = setting.drafts;
  options.context = 128;
  options.snapshots = setting.passes > 1 ? 16 : 0;
  Outcome outcome;
  const Status status = RunJob(ranks, options, [&](Session& session) {
    SchedulerLimits limits = session.scheduler_limits();
    if (setting.pages > 0) limits.pages = setting.pages;
    std::optional<Scheduler> scheduler(limits);
    size_t done = 0;  // requests of earlier schedulers
    const auto keep = [&](const TokenEvent& event, std::span<const float> logits) {
      const size_t index = (done + static_cast<size_t>(event.request)) % requests.size();
      outcome.replies[index].ids.push_back(event.token);
      auto& all = outcome.replies[index].logits;
      all.insert(all.end(), logits.begin(), logits.end());
    };
    for (int pass = 0; pass < setting.passes; ++pass) {
      outcome.replies.assign(requests.size(), {});
      for (const Request& request : requests) {
        ASSERT_TRUE(scheduler->Submit(request).ok());
        if (!setting.apart) continue;
        while (!scheduler->idle()) session.Step(*scheduler, keep);
        scheduler.emplace(limits);
        ++done;
      }
      while (!scheduler->idle()) session.Step(*scheduler, keep);
    }
    outcome.preempted = scheduler->preemptions();
    outcome.cached = scheduler->cached_tokens();
    outcome.guessed = scheduler->guessed_tokens();
    outcome.accepted = scheduler->accepted_tokens();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return outcome;
}

void ExpectSameWhateverHappens(const SessionOptions& options) {
  const std::vector<Request> requests = Requests();
  const std::vector<Reply> alone =
      RunAll(options, 1, {.name = "alone", .apart = true}, requests).replies;
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(std::ssize(alone[i].ids), requests[i].max_tokens);
  }
  for (const int ranks : {1, 2, 3}) {
    for (const Setting& setting :
         {Setting{.name = "sixteen at once"}, Setting{.name = "in pieces", .step_tokens = 24},
          Setting{.name = "preempted", .pages = 20},
          Setting{.name = "guessed", .sequences = 3, .drafts = 6},
          Setting{.name = "again", .sequences = 4, .passes = 2}}) {
      const Outcome outcome = RunAll(options, ranks, setting, requests);
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(outcome.replies[i].ids, alone[i].ids)
            << setting.name << " on " << ranks << ", request " << i;
        EXPECT_TRUE(outcome.replies[i].logits == alone[i].logits)
            << setting.name << " on " << ranks << ", request " << i;
      }
      EXPECT_EQ(outcome.preempted > 0, setting.pages > 0) << setting.name;
      EXPECT_GE(outcome.cached, setting.passes > 1 ? 250 : 0) << setting.name;
      EXPECT_EQ(outcome.guessed > outcome.accepted, setting.drafts > 0) << setting.name;
      EXPECT_EQ(outcome.accepted > 0, setting.drafts > 0) << setting.name;
    }
  }
}

class InvarianceOf : public testing::TestWithParam<const char*> {};

TEST_P(InvarianceOf, TinyModel_SameBitsWhateverHappens) {
  SessionOptions options;
  options.model = DataPath(std::string("tiny/") + GetParam() + ".gguf");
  ExpectSameWhateverHappens(options);
}

INSTANTIATE_TEST_SUITE_P(All, InvarianceOf, testing::Values("qwen3_q4_1", "qwen35_a_rot_ptq1_0"),
                         [](const auto& test) { return std::string(test.param); });

TEST(Invariance, SmolLM2_SameBitsWhateverHappens) {
  TRINE_SKIP_WITHOUT_SMOL();
  SessionOptions options;
  options.model = SmolPath();
  ExpectSameWhateverHappens(options);
}

}  // namespace
}  // namespace trine
