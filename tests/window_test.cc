// The windows of a text, step by step: as a state machine, and through whole jobs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "src/engine/kv_cache.h"
#include "src/engine/window_steps.h"
#include "tests/fixtures.h"
#include "tests/job.h"

namespace trine {
namespace {

TextWindows Numbered(int64_t length, int64_t count, int32_t bos = -1) {
  TextWindows windows{{}, length, count, bos};
  for (int64_t i = 0; i < length * count + 2; ++i) {
    windows.tokens.push_back(static_cast<int32_t>(1000 + i));
  }
  return windows;
}

// Every step keeps the limits and continues its sequences; rows come in the order of the text.
// The tokens that each window was given.
std::vector<std::vector<int32_t>> Replay(const TextWindows& windows, const WindowLimits& limits) {
  std::vector<std::vector<int32_t>> given(static_cast<size_t>(windows.count));
  std::map<int32_t, int64_t> in_slot;
  std::map<int32_t, std::vector<int32_t>> pages;
  std::vector<WindowSteps::Place> places;
  int64_t next_window = 0;
  for (WindowSteps steps(windows, limits); !steps.done();) {
    const StepCommand command = steps.Next();
    EXPECT_LE(std::ssize(command.tokens), limits.tokens);
    EXPECT_LE(std::ssize(command.rows), limits.rows);
    EXPECT_LE(std::ssize(command.sequences), limits.slots);
    EXPECT_GE(std::ssize(command.tokens), 1);
    EXPECT_EQ(command.gather_logits, !command.rows.empty());
    EXPECT_EQ(command.rows.size(), steps.places().size());
    size_t token = 0, row = 0;
    auto page = command.new_pages.begin();
    std::set<int32_t> slots;
    for (const SequenceStep& step : command.sequences) {
      EXPECT_TRUE(slots.insert(step.slot).second);
      EXPECT_LT(step.slot, limits.slots);
      if (step.first_position == 0) {
        in_slot[step.slot] = next_window++;
        pages[step.slot].clear();
      }
      const int64_t window = in_slot[step.slot];
      std::vector<int32_t>& tokens = given[static_cast<size_t>(window)];
      EXPECT_EQ(std::ssize(tokens), step.first_position);
      pages[step.slot].insert(pages[step.slot].end(), page, page + step.new_pages);
      page += step.new_pages;
      EXPECT_EQ(std::ssize(pages[step.slot]), PagesFor(step.first_position + step.tokens));
      for (int32_t i = 0; i < step.tokens; ++i, ++token) {
        const bool wanted =
            row < command.rows.size() && command.rows[row].row == static_cast<int32_t>(token);
        EXPECT_EQ(wanted, std::ssize(tokens) >= windows.length / 2);
        if (wanted) {
          EXPECT_EQ(steps.places()[row].window, window);
          EXPECT_EQ(steps.places()[row].position, std::ssize(tokens));
          ++row;
        }
        tokens.push_back(command.tokens[token]);
      }
    }
    EXPECT_EQ(page, command.new_pages.end());
    EXPECT_EQ(row, command.rows.size());
    std::set<int32_t> used;
    size_t owned = 0;
    for (const auto& [slot, mine] : pages) {
      used.insert(mine.begin(), mine.end());
      owned += mine.size();
    }
    EXPECT_EQ(used.size(), owned) << "two slots share a page";
    EXPECT_TRUE(used.empty() || *used.rbegin() < limits.slots * PagesFor(windows.length));
    places.insert(places.end(), steps.places().begin(), steps.places().end());
  }
  EXPECT_EQ(std::ssize(places), windows.count * windows.rows());
  EXPECT_TRUE(std::is_sorted(places.begin(), places.end(), [](const auto& a, const auto& b) {
    return std::pair(a.window, a.position) < std::pair(b.window, b.position);
  }));
  return given;
}

TEST(WindowSteps, AnyLimits_GiveEveryWindowItsTokens) {
  for (const int64_t length : {3, 4, 33, 70}) {
    const TextWindows windows = Numbered(length, 7);
    for (const int64_t tokens : {1, 5, 64, 500}) {
      for (const int64_t rows : {1, 3, 500}) {
        for (const int64_t slots : {1, 2, 3, 8}) {
          SCOPED_TRACE(testing::Message() << "length " << length << ", " << tokens << " tokens, "
                                          << rows << " rows, " << slots << " slots");
          const auto given = Replay(windows, {slots, tokens, rows});
          for (size_t w = 0; w < given.size(); ++w) {
            const auto begin = windows.tokens.begin() + static_cast<int64_t>(w) * length;
            EXPECT_EQ(given[w], std::vector<int32_t>(begin, begin + length - 1));
          }
        }
      }
    }
  }
}

TEST(WindowSteps, WideLimits_TakeManyWindowsInAStep) {
  const TextWindows windows = Numbered(16, 6);
  WindowSteps steps(windows, {.slots = 4, .tokens = 64, .rows = 64});
  EXPECT_EQ(steps.Next().sequences.size(), 4u);
  EXPECT_EQ(steps.Next().sequences.size(), 2u);
  EXPECT_TRUE(steps.done());
}

TEST(TextWindows, ScoredAreTheLaterHalf_AndBosReplacesTheFirst) {
  const TextWindows windows = Numbered(8, 2, /*bos=*/1);
  EXPECT_EQ(windows.first(), 4);
  EXPECT_EQ(windows.rows(), 3);  // at 4, 5 and 6, for the tokens at 5, 6 and 7
  EXPECT_EQ(windows.Target(0, 6), 1007);
  EXPECT_EQ(windows.Target(1, 4), 1013);
  const auto given = Replay(windows, {2, 16, 16});
  EXPECT_EQ(given[1], (std::vector<int32_t>{1, 1009, 1010, 1011, 1012, 1013, 1014}));
}

// ---- whole jobs

struct Rows {
  Logits logits;  // [scored tokens, vocabulary]
  std::vector<WindowSteps::Place> faults;
};

Rows RunWindows(const SessionOptions& options, int ranks, const TextWindows& windows) {
  Rows run;
  const Status status = RunJob(ranks, options, [&](Session& session) {
    WindowSteps steps(windows, {session.scheduler_limits().sequences, session.step_limits().tokens,
                                session.step_limits().logit_rows});
    while (!steps.done()) {
      const StepResult& result = session.Execute(steps.Next());
      if (steps.places().empty()) continue;
      run.logits.insert(run.logits.end(), result.logits.begin(), result.logits.end());
      for (size_t i = 0; i < result.rows.size(); ++i) {
        if (result.rows[i].fault) run.faults.push_back(steps.places()[i]);
      }
    }
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return run;
}

TextWindows RandomWindows(int64_t length, int64_t count) {
  TextWindows windows{{}, length, count, /*bos=*/0};
  uint64_t state = 9;
  for (int64_t i = 0; i < length * count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    windows.tokens.push_back(static_cast<int32_t>(3 + (state >> 33) % 260));
  }
  return windows;
}

SessionOptions Options(const std::string& name, int64_t sequences, int64_t tokens, int64_t rows) {
  SessionOptions options;
  options.model = DataPath("tiny/" + name + ".gguf");
  options.context = 40;
  options.sequences = sequences;
  options.step_tokens = tokens;
  options.logit_rows = rows;
  return options;
}

bool SameBits(const Logits& a, const Logits& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The rows of each window evaluated alone, all at once.
TEST(Job, WindowsInAnySteps_GiveTheBitsOfEachAlone) {
  const TextWindows windows = RandomWindows(40, 5);
  for (const char* name : {"qwen3_q4_1", "qwen35_a_rot_pq2_0"}) {
    std::vector<Tokens> alone(5);
    Logits expected;
    const Status status = RunJob(1, Options(name, 5, 200, 200), [&](Session& session) {
      for (int64_t w = 0; w < 5; ++w) {
        Tokens& tokens = alone[static_cast<size_t>(w)];
        for (int64_t p = 0; p < 40; ++p) tokens.push_back(windows.Input(w, p));
        const Logits all = Evaluate(session, {tokens}, 40)[0];
        const int64_t vocab = session.config().vocab;
        expected.insert(expected.end(), all.begin() + 20 * vocab, all.begin() + 39 * vocab);
      }
    });
    ASSERT_TRUE(status.ok()) << status.message();
    for (const int ranks : {1, 2, 3}) {
      EXPECT_TRUE(SameBits(RunWindows(Options(name, 1, 40, 40), ranks, windows).logits, expected));
      EXPECT_TRUE(SameBits(RunWindows(Options(name, 1, 7, 3), ranks, windows).logits, expected));
      EXPECT_TRUE(SameBits(RunWindows(Options(name, 3, 90, 25), ranks, windows).logits, expected));
    }
  }
}

// A token whose embedding is not a number spoils its own row and those behind it in its window.
TEST(Job, FaultyToken_MarksTheRowsFromItOn) {
  const std::string bytes = WithoutRow50(DataPath("tiny/llama_f32.gguf"));
  SessionOptions options = Options("llama_f32", 2, 80, 80);
  options.model = testing::TempDir() + "/trine_window_test.gguf";
  std::ofstream(options.model, std::ios::binary) << bytes;
  TextWindows windows = RandomWindows(40, 3);
  std::replace(windows.tokens.begin(), windows.tokens.end(), 50, 51);
  windows.tokens[40 + 30] = 50;
  for (const int64_t step : {7, 80}) {
    options.step_tokens = step;
    const Rows run = RunWindows(options, 2, windows);
    ASSERT_EQ(run.faults.size(), 9u) << step;  // at 30 to 38
    EXPECT_EQ(run.faults[0].window, 1);
    EXPECT_EQ(run.faults[0].position, 30);
  }
  std::remove(options.model.c_str());
}

// As many rows of logits in a step as fit in the bytes; at least one a sequence, at most the
// tokens.
TEST(PlanJob, LogitBytes_BoundTheRows) {
  const auto store = OpenWeights(DataPath("tiny/qwen3_q4_1.gguf"));  // 2100 rows of vocabulary
  ASSERT_TRUE(store.ok());
  SessionOptions options;
  options.sequences = 3;
  options.step_tokens = 100;
  const auto rows = [&](int64_t bytes) {
    options.logit_bytes = bytes;
    return PlanJob(**store, options, 1)->step.logit_rows;
  };
  EXPECT_EQ(rows(0), 3);
  EXPECT_EQ(rows(2100 * 4 * 50 - 1), 49);
  EXPECT_EQ(rows(1 << 30), 100);
  options.logit_rows = 200;
  EXPECT_EQ(rows(2100 * 4 * 50), 200);
}

}  // namespace
}  // namespace trine
