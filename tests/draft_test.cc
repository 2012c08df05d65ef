// Steps of whole jobs that hold guessed tokens: those that prove wrong leave no trace, those that
// prove right count as if they had come one by one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <random>

#include "tests/fixtures.h"
#include "tests/job.h"

namespace trine {
namespace {

constexpr int64_t kDrafts = 4;

SessionOptions Options(const std::string& path) {
  SessionOptions options;
  options.model = path;
  options.sequences = 3;
  options.drafts = kDrafts;
  options.snapshots = 2;
  return options;
}

// A sequence whose tokens are known, on its way through steps with drafts.
struct Sequence {
  Tokens tokens = {};
  int32_t slot = 0;
  int32_t next = 0, accepted = 0;  // tokens computed for good, drafts after them that are right
  int32_t restore = -1, save = -1;
  std::vector<int32_t> pages = {};
  Logits logits = {};

  int32_t done() const { return next + accepted; }
  int32_t left() const { return static_cast<int32_t>(tokens.size()) - done(); }
};

// Its next `certain` tokens, then `right` that are its own too and `wrong` that are not, as drafts.
struct Taken {
  Sequence* sequence;
  int32_t certain, right, wrong;
};

void AddStep(const Taken& taken, PageAllocator& pages, StepCommand& command) {
  Sequence& sequence = *taken.sequence;
  const int32_t known = taken.certain + taken.right, count = known + taken.wrong;
  SequenceStep step{sequence.slot, sequence.done(), count};
  step.begins = sequence.logits.empty() ? 1 : 0;
  if (step.begins != 0) {  // those of the beginning that another computed
    command.new_pages.insert(command.new_pages.end(), sequence.pages.begin(), sequence.pages.end());
    step.new_pages = static_cast<int32_t>(sequence.pages.size());
  }
  while (std::ssize(sequence.pages) < PagesFor(step.first_position + count)) {
    sequence.pages.push_back(pages.Take());
    command.new_pages.push_back(sequence.pages.back());
    ++step.new_pages;
  }
  step.restore = sequence.restore;
  step.save = sequence.save;
  step.drafts = taken.right + taken.wrong;
  step.accepted = sequence.accepted;
  for (int32_t i = 0; i < count; ++i) {
    command.rows.push_back({static_cast<int32_t>(command.tokens.size()), 0, {}});
    const auto at = static_cast<size_t>(step.first_position + i);
    command.tokens.push_back(i < known ? sequence.tokens[at] : 3 + (5 * i + step.drafts) % 200);
  }
  command.sequences.push_back(step);
}

// One step of them all. The logits of their own tokens are kept, `accept` drafts of each accepted.
void RunStep(Session& session, PageAllocator& pages, const std::vector<Taken>& all,
             const std::vector<int32_t>& accept) {
  StepCommand command;
  command.gather_logits = true;
  for (const Taken& taken : all) AddStep(taken, pages, command);
  const float* row = session.Execute(command).logits.data();
  const int64_t vocab = session.config().vocab;
  for (size_t i = 0; i < all.size(); ++i) {
    Sequence& sequence = *all[i].sequence;
    const int32_t kept = all[i].certain + accept[i];
    sequence.logits.insert(sequence.logits.end(), row, row + kept * vocab);
    row += (all[i].certain + all[i].right + all[i].wrong) * vocab;
    sequence.next = sequence.done() + all[i].certain;
    sequence.accepted = accept[i];
    sequence.restore = sequence.save = -1;
  }
}

// Random steps until all sequences are through.
void RunDrafts(Session& session, PageAllocator& pages, std::vector<Sequence>& sequences,
               uint32_t seed) {
  std::mt19937 random(seed);
  const auto up_to = [&](int32_t most) {
    return std::uniform_int_distribution<int32_t>(0, most)(random);
  };
  constexpr auto most = static_cast<int32_t>(kDrafts);
  for (;;) {
    std::vector<Taken> all;
    std::vector<int32_t> accept;
    for (Sequence& sequence : sequences) {
      if (sequence.left() == 0) continue;
      const int32_t certain = 1 + up_to(std::min(2, sequence.left() - 1));
      const int32_t right = up_to(std::min(most, sequence.left() - certain));
      all.push_back({&sequence, certain, right, up_to(most - right)});
      accept.push_back(up_to(right));
    }
    if (all.empty()) return;
    RunStep(session, pages, all, accept);
  }
}

struct Tiny {
  const char *name, *list;
};
constexpr Tiny kModels[] = {{"qwen35_a_rot_ptq1_0", "qwen35"}, {"qwen3_q4_0", "tiny"}};

Tokens TokensOf(const Tiny& model) {
  return ReadJson(DataPath(std::string("tiny/") + model.list + ".json"))[model.name]["tokens"];
}
std::string PathOf(const Tiny& model) {
  return DataPath(std::string("tiny/") + model.name + ".gguf");
}

// The logits of every token, decoded one by one in a job without drafts.
Logits OneByOne(const std::string& path, const Tokens& tokens) {
  SessionOptions options = Options(path);
  options.drafts = 0;
  Logits logits;
  const Status status = RunJob(
      1, options, [&](Session& session) { logits = Evaluate(session, {tokens}, /*chunk=*/1)[0]; });
  EXPECT_TRUE(status.ok()) << status.message();
  return logits;
}

bool SameBits(const Logits& a, const Logits& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Drafts, RightAndWrongOnes_SameBitsAsOneByOne) {
  for (const Tiny& model : kModels) {
    const Tokens tokens = TokensOf(model), other(tokens.rbegin(), tokens.rend() - 5);
    const Logits expected = OneByOne(PathOf(model), tokens);
    const Logits expected_other = OneByOne(PathOf(model), other);
    for (const int ranks : {1, 2, 3}) {
      for (const uint32_t seed : {1u, 2u}) {
        std::vector<Sequence> sequences(2);
        const Status status = RunJob(ranks, Options(PathOf(model)), [&](Session& session) {
          PageAllocator pages(session.scheduler_limits().pages);
          sequences[0].tokens = tokens;
          sequences[1].tokens = other;
          sequences[1].slot = 2;
          RunDrafts(session, pages, sequences, seed);
        });
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_TRUE(SameBits(sequences[0].logits, expected)) << model.name << " " << ranks;
        EXPECT_TRUE(SameBits(sequences[1].logits, expected_other)) << model.name << " " << ranks;
      }
    }
  }
}

// A snapshot made in a step with drafts, while drafts of the step before are accepted, has the
// accepted ones in it and the new ones not.
TEST(Drafts, SnapshotAmongThem_IsOfTheTokensBefore) {
  const Tiny& model = kModels[0];
  const Tokens tokens = TokensOf(model);
  const Logits expected = OneByOne(PathOf(model), tokens);
  SessionOptions options = Options(PathOf(model));
  options.logit_rows = 64;
  for (const int ranks : {1, 2, 3}) {
    Logits rest;
    int64_t first = 0;
    const Status status = RunJob(ranks, options, [&](Session& session) {
      PageAllocator pages(session.scheduler_limits().pages);
      Sequence sequence{tokens}, heir{tokens, /*slot=*/1};
      RunStep(session, pages, {{&sequence, 30, 3, 1}}, {2});
      sequence.save = 1;
      RunStep(session, pages, {{&sequence, 2, 2, 1}}, {1});
      first = heir.next = sequence.next;
      heir.restore = 1;
      heir.pages = sequence.pages;
      RunStep(session, pages, {{&heir, heir.left() - 3, 3, 0}}, {3});
      rest = heir.logits;
    });
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(first, 34);
    const int64_t vocab = std::ssize(expected) / std::ssize(tokens);
    EXPECT_TRUE(SameBits(rest, {expected.begin() + first * vocab, expected.end()})) << ranks;
  }
}

// A draft that met a value out of range spoils the rows of its step from it on, and its sequence
// only if it is accepted.
TEST(Drafts, FaultyOne_CountsOnceAccepted) {
  const std::string path =
      testing::TempDir() + "/trine_draft_test_" + std::to_string(getpid()) + ".gguf";
  std::ofstream(path, std::ios::binary) << WithoutRow50(DataPath("tiny/llama_f32.gguf"));
  const auto faults = [](Session& session, const SequenceStep& step, const Tokens& tokens) {
    StepCommand command;
    command.sequences = {step};
    command.tokens = tokens;
    if (step.new_pages > 0) command.new_pages = {0};
    for (int32_t i = 0; i < step.tokens; ++i) command.rows.emplace_back().row = i;
    std::vector<bool> found;
    for (const RowResult& row : session.Execute(command).rows) found.push_back(row.fault);
    return found;
  };
  for (const int ranks : {1, 2}) {
    const Status status = RunJob(ranks, Options(path), [&](Session& session) {
      for (const int32_t accepted : {0, 1, 2}) {
        SequenceStep step{.tokens = 5, .new_pages = 1, .begins = 1, .drafts = 3};
        EXPECT_EQ(faults(session, step, {7, 8, 9, 50, 10}),
                  std::vector<bool>({false, false, false, true, true}));
        // Written over the faulty one, so that nothing but the slot knows of it.
        const int32_t next = std::min(2 + accepted, 3);
        step = {.first_position = next, .tokens = 2, .drafts = 1, .accepted = accepted};
        EXPECT_EQ(faults(session, step, {11, 12}), std::vector<bool>(2, accepted == 2)) << accepted;
        step = {.first_position = next + 1, .tokens = 1};
        EXPECT_EQ(faults(session, step, {13}), std::vector<bool>(1, accepted == 2)) << accepted;
      }
    });
    ASSERT_TRUE(status.ok()) << status.message();
  }
  std::remove(path.c_str());
}

// Steps that hold every sequence's drafts with their logits, and a log for each sequence's slot but
// for no snapshot.
TEST(Drafts, Plan_HasRoomForThem) {
  const std::string path = PathOf(kModels[0]);
  const auto store = OpenWeights(path);
  ASSERT_TRUE(store.ok());
  SessionOptions options = Options(path);
  options.step_tokens = 1;
  const auto state = [&](int64_t drafts, int64_t tokens) {
    options.drafts = drafts;
    const auto plan = PlanJob(**store, options, 2);
    EXPECT_TRUE(plan.ok());
    EXPECT_EQ(plan->step.tokens, tokens);
    EXPECT_EQ(plan->step.logit_rows, tokens);
    const auto memory = PlanMemory(**store, options, *plan, {0, 2});
    EXPECT_TRUE(memory.ok());
    return memory->front().state + memory->back().state;
  };
  const int64_t without = state(0, 3), with = state(kDrafts, 3 * (1 + kDrafts));
  const auto plan = PlanJob(**store, options, 1);
  ASSERT_TRUE(plan.ok());
  const ModelConfig& config = plan->model.config;
  const DeltaLayout layout{config.key_heads, config.value_heads, config.delta_dim, config.conv_taps,
                           kDrafts};
  EXPECT_EQ(with - without, 3 * config.recurrent_layers() * layout.log_floats() * 4);
  EXPECT_EQ(layout.log_row(), (3 * config.key_heads + 2 * config.value_heads) * config.delta_dim +
                                  2 * config.value_heads);
}

}  // namespace
}  // namespace trine
