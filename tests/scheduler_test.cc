// The scheduler: scenarios told as text (data/scheduler.txt), and random requests against what must
// always hold.
#include "src/engine/scheduler.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "tests/fixtures.h"

namespace trine {
namespace {

const char* Name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kFault:
      return "fault";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kDeadline:
      return "deadline";
  }
  return "?";
}

// "word key=value key=value": the numbers by key.
std::map<std::string, int64_t> Numbers(std::istringstream& words) {
  std::map<std::string, int64_t> numbers;
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    numbers[word.substr(0, equals)] = std::stoll(word.substr(equals + 1));
  }
  return numbers;
}

// Runs the commands of one scenario; each answers with a line. A step says for each of its
// sequences NAME:FIRST+TOKENS, ~GUESSES among them, ^GUESSES of the last step that were right,
// /PAGES that are new, <SNAPSHOT that it begins with, >SNAPSHOT that it leaves, * for every row
// that a token may be sampled from, then its events.
class Scenario {
 public:
  std::string Do(const std::string& line) {
    std::istringstream words(line);
    std::string verb, name;
    words >> verb;
    if (verb == "submit" || verb == "cancel" || verb == "fault") words >> name;
    auto numbers = Numbers(words);
    if (verb == "limits") return Limits(numbers);
    if (verb == "submit") return Submit(name, numbers);
    if (verb == "step") return Step();
    if (verb == "begin") return Begin();
    if (verb == "complete") return Complete();
    if (verb == "token") return token_ = static_cast<int32_t>(numbers["id"]), "";
    if (verb == "fault") return faulty_ = id(name), "";
    if (verb == "cancel") return scheduler_->Cancel(id(name)), Events();
    if (verb == "expire") return scheduler_->Expire(numbers["now"]), Events();
    if (verb == "limit") return scheduler_->LimitStep(numbers["step"]), "";
    if (verb == "state") return State();
    return "unknown command";
  }

 private:
  std::string Limits(std::map<std::string, int64_t>& n) {
    limits_ = {.context = n["context"],
               .made_for = 1000,
               .sequences = n["sequences"],
               .drafts = n["drafts"],
               .step_tokens = n["step"],
               .pages = n["pages"],
               .logit_rows = n["sequences"] * (1 + n["drafts"]),
               .vocab = 100,
               .recurrent = n["recurrent"] != 0,
               .snapshots = n["snapshots"]};
    scheduler_ = std::make_unique<Scheduler>(limits_);
    return "";
  }

  std::string Submit(const std::string& name, std::map<std::string, int64_t>& n) {
    Request request;
    // `like` names one whose prompt it shares; others share nothing.
    const int32_t mark = n.contains("like") ? static_cast<int32_t>(n["like"]) : next_mark_++;
    request.prompt.assign(static_cast<size_t>(n["prompt"]), mark);
    if (n.contains("tail"))
      request.prompt.insert(request.prompt.end(), static_cast<size_t>(n["tail"]), 3);
    request.max_tokens = n.contains("max") ? static_cast<int32_t>(n["max"]) : -1;
    request.sampling.temperature = 0;
    request.client = n["client"];
    if (n.contains("deadline")) request.deadline = n["deadline"];
    if (n.contains("stop")) request.stop = {static_cast<int32_t>(n["stop"])};
    const Result<int64_t> result = scheduler_->Submit(std::move(request));
    if (!result.ok()) return result.status().message();
    names_[*result] = name;
    return "";
  }

  std::string Begin() {
    command_ = scheduler_->Next();
    std::string text;
    size_t row = 0;
    int32_t token = 0;
    rows_.clear();
    for (const SequenceStep& step : command_.sequences) {
      const std::string name = InSlot(step.slot);
      text += (text.empty() ? "" : " ") + name + ":" + std::to_string(step.first_position) + "+" +
              std::to_string(step.tokens);
      if (step.drafts > 0) text += "~" + std::to_string(step.drafts);
      if (step.accepted > 0) text += "^" + std::to_string(step.accepted);
      if (step.new_pages > 0) text += "/" + std::to_string(step.new_pages);
      if (step.restore >= 0) text += "<" + std::to_string(step.restore);
      if (step.save >= 0) text += ">" + std::to_string(step.save);
      token += step.tokens;
      for (; row < command_.rows.size() && command_.rows[row].row < token; ++row) {
        rows_.push_back(name);
        text += "*";
      }
    }
    return text;
  }

  std::string Complete() {
    const Candidate candidate{token_, 1.0f, 1.0f};
    std::vector<RowResult> results;
    for (const std::string& name : rows_) {
      results.push_back({{&candidate, 1}, faulty_ >= 0 && names_[faulty_] == name});
    }
    scheduler_->Complete(results);
    return Events();
  }

  std::string Step() {
    const std::string begun = Begin(), ended = Complete();
    return ended.empty() ? begun : begun + " -> " + ended;
  }

  std::string Events() {
    std::string text;
    scheduler_->TakeEvents(events_);
    for (const TokenEvent& event : events_) {
      text += (text.empty() ? "" : " ") + names_[event.request];
      if (event.token >= 0) text += "=" + std::to_string(event.token);
      if (event.finish != FinishReason::kNone) text += "." + std::string(Name(event.finish));
    }
    return text;
  }

  std::string State() {
    return std::string(scheduler_->idle() ? "idle" : "busy") + ", " +
           std::to_string(scheduler_->free_slots()) + " slots, " +
           std::to_string(scheduler_->free_pages()) + " pages free, " +
           std::to_string(scheduler_->preemptions()) + " preempted" +
           (scheduler_->cached_tokens() > 0
                ? ", " + std::to_string(scheduler_->cached_tokens()) + " tokens cached"
                : "") +
           (scheduler_->guessed_tokens() > 0
                ? ", " + std::to_string(scheduler_->accepted_tokens()) + " of " +
                      std::to_string(scheduler_->guessed_tokens()) + " guesses right"
                : "");
  }

  std::string InSlot(int32_t slot) {
    for (const auto& [request, name] : names_) {
      if (scheduler_->slot(request) == slot) return name;
    }
    return "?";
  }

  int64_t id(const std::string& name) {
    for (const auto& [request, known] : names_) {
      if (known == name) return request;
    }
    return -1;
  }

  SchedulerLimits limits_;
  std::unique_ptr<Scheduler> scheduler_;
  std::map<int64_t, std::string> names_;
  int32_t next_mark_ = 100;
  StepCommand command_;
  std::vector<TokenEvent> events_;
  std::vector<std::string> rows_;
  int32_t token_ = 42;
  int64_t faulty_ = -1;
};

// data/scheduler.txt: "== name", then commands, each followed by its answer behind "> " if it has
// one.
TEST(Scheduler, Scenarios_GoAsWritten) {
  std::ifstream file(DataPath("scheduler.txt"));
  ASSERT_TRUE(file.good());
  std::unique_ptr<Scenario> scenario;
  std::string line, title, answer;
  int scenarios = 0, number = 0;
  while (std::getline(file, line)) {
    ++number;
    if (line.starts_with("==")) {
      EXPECT_EQ(answer, "") << title << ", line " << number;
      title = line;
      scenario = std::make_unique<Scenario>();
      ++scenarios;
    } else if (line.starts_with("> ")) {
      EXPECT_EQ(answer, line.substr(2)) << title << ", line " << number;
      answer = "";
    } else if (!line.empty() && line[0] != '#') {
      EXPECT_EQ(answer, "") << title << ", line " << number;
      answer = scenario->Do(line);
    }
  }
  EXPECT_EQ(answer, "");
  EXPECT_GE(scenarios, 40);
}

// What the executor holds, from the commands alone: the tokens whose keys and values lie in every
// page, the state in every slot and snapshot, as the tokens that they come from.
class Ledger {
 public:
  explicit Ledger(const SchedulerLimits& limits) : limits_(limits) {}

  void Step(const StepCommand& command) {
    CheckSizes(command);
    for (const SequenceStep& step : command.sequences) {
      if (step.restore >= 0) restored_[step.slot] = snapshots_.at(step.restore);
    }
    auto page = command.new_pages.begin();
    auto token = command.tokens.begin();
    for (const SequenceStep& step : command.sequences) {
      Slot& slot = slots_[step.slot];
      if (step.begins != 0) slot = {};
      slot.pages.insert(slot.pages.end(), page, page + step.new_pages);
      page += step.new_pages;
      if (step.begins != 0) {
        ASSERT_NO_FATAL_FAILURE(Begin(step, slot));
      }
      ASSERT_LE(step.accepted, slot.drafts);
      ASSERT_EQ(step.first_position, std::ssize(slot.tokens) - slot.drafts + step.accepted)
          << "it goes on behind what was right";
      slot.tokens.resize(static_cast<size_t>(step.first_position));
      slot.tokens.insert(slot.tokens.end(), token, token + step.tokens);
      slot.drafts = step.drafts;
      token += step.tokens;
      ASSERT_LT(step.drafts, step.tokens);
      ASSERT_EQ(std::ssize(slot.pages), PagesFor(std::ssize(slot.tokens))) << "no more than needed";
      for (size_t i = static_cast<size_t>(step.first_position / kPageTokens); i < slot.pages.size();
           ++i) {
        const size_t end = std::min(slot.tokens.size(), (i + 1) * kPageTokens);
        written_.insert(slot.pages[i]);
        pages_[slot.pages[i]].assign(slot.tokens.begin(),
                                     slot.tokens.begin() + static_cast<int64_t>(end));
      }
      if (step.save >= 0) snapshots_[step.save] = tokens(step.slot);
    }
    ASSERT_EQ(page, command.new_pages.end());
    ASSERT_EQ(token, command.tokens.end());
    // A page that is written in a step is no other sequence's.
    for (const int32_t used : written_) {
      int holders = 0;
      for (const SequenceStep& step : command.sequences) {
        const auto& mine = slots_[step.slot].pages;
        holders += std::find(mine.begin(), mine.end(), used) != mine.end() ? 1 : 0;
      }
      ASSERT_EQ(holders, 1) << "a page used twice";
    }
    written_.clear();
  }

  // Without guesses: what the recurrent state is that of.
  std::vector<int32_t> tokens(int32_t slot) {
    const Slot& it = slots_[slot];
    return {it.tokens.begin(), it.tokens.end() - it.drafts};
  }

 private:
  struct Slot {
    std::vector<int32_t> pages, tokens;
    int32_t drafts = 0;  // the last of the tokens
  };

  void CheckSizes(const StepCommand& command) {
    int64_t tokens = 0;
    std::set<int32_t> slots;
    for (const SequenceStep& step : command.sequences) {
      ASSERT_TRUE(slots.insert(step.slot).second) << "a slot twice in a step";
      ASSERT_LT(step.slot, limits_.sequences);
      ASSERT_GT(step.tokens, 0);
      tokens += step.tokens;
    }
    ASSERT_LE(tokens, limits_.step_tokens);
  }

  // What a sequence begins with: the tokens of its pages before its first position, the same as
  // those of the state.
  void Begin(const SequenceStep& step, Slot& slot) {
    if (step.first_position == 0) return;
    ASSERT_EQ(step.first_position % kPageTokens, 0);
    const auto pages = static_cast<size_t>(step.first_position / kPageTokens);
    slot.tokens = pages_.at(slot.pages[pages - 1]);
    ASSERT_EQ(std::ssize(slot.tokens), step.first_position) << "a page that was not full";
    for (size_t i = 0; i < pages; ++i) {
      const auto& held = pages_.at(slot.pages[i]);
      ASSERT_TRUE(std::equal(held.begin(), held.end(), slot.tokens.begin())) << "of another text";
    }
    if (limits_.recurrent) {
      ASSERT_EQ(restored_.at(step.slot), slot.tokens) << "another state";
    }
  }

  SchedulerLimits limits_;
  std::map<int32_t, Slot> slots_;
  std::map<int32_t, std::vector<int32_t>> pages_, snapshots_, restored_;
  std::set<int32_t> written_;
};

// 100,000 random steps: requests of all lengths that share beginnings come, are cancelled, miss
// their deadlines and fail, also while a step runs. Nothing is used twice, whoever begins with what
// others computed gets what its own tokens give, prompts are scored token by token where that is
// asked for, all ends, and in the end all is free.
class RandomRun {
 public:
  explicit RandomRun(std::mt19937& random) : random_(random) {
    for (auto& base : bases_) {
      for (int i = 0; i < 400; ++i) base.push_back(static_cast<int32_t>(2 + Below(3)));
    }
  }

  void Go() {
    for (int64_t i = 0; i < 500 || !scheduler_.idle(); ++i) {
      ASSERT_LT(i, 100000) << "requests that never end";
      if (i < 500 && Below(3) == 0) Submit();
      Disturb();
      ASSERT_NO_FATAL_FAILURE(Note());
      if (scheduler_.idle()) continue;
      ASSERT_NO_FATAL_FAILURE(Step());
    }
    ASSERT_NO_FATAL_FAILURE(Note());
    EXPECT_TRUE(open_.empty());
    EXPECT_EQ(scheduler_.free_pages(), limits_.pages);
    EXPECT_EQ(scheduler_.free_slots(), limits_.sequences);
  }

  int64_t steps = 0, restored = 0, scored = 0;
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  void Submit() {
    Request request;
    const auto& base = bases_[Below(2)];
    const int64_t length = 1 + Below(limits_.context);
    request.prompt.assign(base.begin(), base.begin() + std::min<int64_t>(length, 400));
    if (Below(2) == 0) request.prompt.back() = 9;
    request.max_tokens = static_cast<int32_t>(1 + Below(120));
    request.client = Below(3);
    if (Below(4) == 0) request.deadline = Below(2000);
    request.stop = {1};
    if (Below(6) == 0) request.sampling.prompt_logprobs = 0;
    const bool to_be_scored = request.sampling.prompt_logprobs >= 0;
    const std::vector<int32_t> prompt = request.prompt;
    const Result<int64_t> id = scheduler_.Submit(std::move(request));
    if (!id.ok()) return;
    open_[*id] = prompt;
    if (to_be_scored) to_score_[*id] = std::deque(prompt.begin() + 1, prompt.end());
  }

  void Disturb() {
    if (!open_.empty() && Below(20) == 0) scheduler_.Cancel(open_.begin()->first + Below(5));
    if (Below(50) == 0) scheduler_.Expire(Below(1000));
  }

  void Note() {
    scheduler_.TakeEvents(events_);
    for (const TokenEvent& event : events_) {
      ASSERT_TRUE(open_.contains(event.request)) << "an event of a request that has ended";
      std::deque<int32_t>& to_score = to_score_[event.request];
      if (event.logprobs.token.id >= 0) {
        ASSERT_FALSE(to_score.empty()) << "a token scored twice, or unasked";
        ASSERT_EQ(event.logprobs.token.id, to_score.front());
        to_score.pop_front();
        ++scored;
      }
      if (event.token >= 0) {
        ASSERT_TRUE(to_score.empty()) << "a token without its score";
      }
      if (event.token >= 0) open_[event.request].push_back(event.token);
      if (event.finish == FinishReason::kNone) continue;
      open_.erase(event.request);
      to_score_.erase(event.request);
    }
  }

  void Step() {
    const StepCommand& command = scheduler_.Next();
    ASSERT_NO_FATAL_FAILURE(ledger_.Step(command));
    for (const SequenceStep& step : command.sequences) restored += step.restore >= 0 ? 1 : 0;
    for (const auto& [request, tokens] : open_) {
      if (scheduler_.slot(request) < 0) continue;
      const auto held = ledger_.tokens(scheduler_.slot(request));
      const bool in_step = std::any_of(
          command.sequences.begin(), command.sequences.end(),
          [&](const SequenceStep& step) { return step.slot == scheduler_.slot(request); });
      if (!in_step) continue;
      ASSERT_TRUE(std::equal(held.begin(), held.end(), tokens.begin())) << request;
    }
    ASSERT_NO_FATAL_FAILURE(CheckTargets(command));
    Disturb();
    ASSERT_LE(std::ssize(command.rows), limits_.logit_rows);
    std::vector<Candidate> candidates(command.rows.size());
    std::vector<RowResult> rows;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const auto next = static_cast<size_t>(command.rows[i].row) + 1;  // a guess, or another's
      const bool follow = next < command.tokens.size() && Below(2) == 0;
      candidates[i].id = Below(30) == 0 ? 1
                         : follow       ? command.tokens[next]
                                        : static_cast<int32_t>(2 + Below(3));
      const LogitRow& row = command.rows[i];
      rows.push_back({{&candidates[i], 1}, Below(row.target < 0 ? 200 : 5000) == 0});
      rows.back().target.id = row.target;
      rows.back().logit_sum = {0, 1};
    }
    scheduler_.Complete(rows);
    ASSERT_NO_FATAL_FAILURE(Note());
    ++steps;
  }

  // The target of a row is what follows its token in the prompt.
  void CheckTargets(const StepCommand& command) {
    size_t row = 0;
    int32_t first = 0;  // of a sequence in the step
    for (const SequenceStep& step : command.sequences) {
      const auto request = std::find_if(open_.begin(), open_.end(), [&](const auto& open) {
        return scheduler_.slot(open.first) == step.slot;
      });
      for (; row < command.rows.size() && command.rows[row].row < first + step.tokens; ++row) {
        ASSERT_GE(command.rows[row].row, first);
        const int32_t next = step.first_position + command.rows[row].row - first + 1;
        if (command.rows[row].target < 0) continue;
        ASSERT_EQ(request->second[static_cast<size_t>(next)], command.rows[row].target);
      }
      first += step.tokens;
    }
    ASSERT_EQ(row, command.rows.size()) << "rows in order of the tokens";
  }

  std::mt19937& random_;
  const SchedulerLimits limits_ = {.context = 32 + Below(300),
                                   .made_for = 1000,
                                   .sequences = 1 + Below(8),
                                   .drafts = Below(2) * Below(12),
                                   .step_tokens = 8 + Below(120),
                                   .pages = 1 + Below(16),
                                   .logit_rows = 8 + 20 * Below(3),
                                   .vocab = 10,
                                   .recurrent = Below(2) == 0,
                                   .snapshots = Below(6)};
  Scheduler scheduler_{limits_};
  Ledger ledger_{limits_};
  std::vector<TokenEvent> events_;
  std::vector<int32_t> bases_[2];
  std::map<int64_t, std::vector<int32_t>> open_;     // tokens of requests that have not ended
  std::map<int64_t, std::deque<int32_t>> to_score_;  // what is left of their prompts
};

TEST(Scheduler, RandomRequests_AllEndAndGiveAllBack) {
  std::mt19937 random(7);
  int64_t steps = 0, preemptions = 0, cached = 0, restored = 0, scored = 0, guessed = 0,
          accepted = 0;
  while (steps < 100000) {
    RandomRun run(random);
    ASSERT_NO_FATAL_FAILURE(run.Go());
    steps += run.steps;
    preemptions += run.scheduler().preemptions();
    cached += run.scheduler().cached_tokens();
    restored += run.restored;
    scored += run.scored;
    guessed += run.scheduler().guessed_tokens();
    accepted += run.scheduler().accepted_tokens();
  }
  EXPECT_GT(preemptions, 300);
  EXPECT_GT(cached, 100000);
  EXPECT_GT(restored, 500);
  EXPECT_GT(scored, 100000);
  EXPECT_GT(accepted, 10000);
  EXPECT_GT(guessed, accepted + 10000);
}

// ---- guesses

// The same by all pairs of ends.
size_t LongestRepeat(const std::vector<int32_t>& tokens) {
  size_t best = 2, place = 0;
  for (size_t end = tokens.size() - 1; end > 0; --end) {
    size_t match = 0;
    while (match < std::min<size_t>(end, 16) &&
           tokens[end - 1 - match] == tokens[tokens.size() - 1 - match]) {
      ++match;
    }
    if (match > best) place = end;
    best = std::max(best, match);
  }
  return place;
}

TEST(PromptLookup, FindRepeat_TakesTheLongestThenTheLatest) {
  EXPECT_EQ(FindRepeat(std::vector<int32_t>{1}), 0u);
  EXPECT_EQ(FindRepeat(std::vector<int32_t>{1, 2, 1, 2}), 0u) << "two are too few";
  EXPECT_EQ(FindRepeat(std::vector<int32_t>{1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3}), 7u) << "the latest";
  EXPECT_EQ(FindRepeat(std::vector<int32_t>{9, 1, 2, 3, 4, 1, 2, 3, 5, 9, 1, 2, 3}), 4u);
  EXPECT_EQ(FindRepeat(std::vector<int32_t>(50, 7)), 49u) << "it may overlap";
  std::mt19937 random(5);
  int found = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<int32_t> tokens(1 + random() % 60);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % (2 + i % 4));
    EXPECT_EQ(FindRepeat(tokens), LongestRepeat(tokens));
    found += FindRepeat(tokens) > 0 ? 1 : 0;
  }
  EXPECT_GT(found, 500);
}

// A guess that is right with chance p: the count settles where the last of the guesses is right
// with 0.4, i.e. log(0.4) / log(p).
TEST(PromptLookup, GuessCount_FollowsTheChance) {
  std::mt19937 random(6);
  for (const auto [chance, low, high] :
       {std::array{0.95, 12.0, 24.0}, std::array{0.7, 1.5, 4.0}, std::array{0.05, 0.0, 0.03}}) {
    GuessCount count;
    double guesses = 0;
    for (int step = 0; step < 3000; ++step) {
      const int64_t guessed = count.Next(30);
      int64_t right = 0;
      while (right < guessed && static_cast<double>(random() % 1000) < chance * 1000) ++right;
      if (guessed > 0) count.Learn(guessed, right);
      if (step >= 1000) guesses += static_cast<double>(guessed) / 2000;
    }
    EXPECT_GE(guesses, low) << chance;
    EXPECT_LE(guesses, high) << chance;
  }
}

}  // namespace
}  // namespace trine
