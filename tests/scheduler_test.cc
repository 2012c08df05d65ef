// The scheduler: scenarios told as text (data/scheduler.txt), and random requests against what must
// always hold.
#include "src/engine/scheduler.h"

#include <gtest/gtest.h>

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
// sequences NAME:FIRST+TOKENS, /PAGES that are new, * if a token is sampled, then its events.
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
    if (verb == "cancel") return scheduler_->Cancel(id(name)), Events(scheduler_->TakeEvents());
    if (verb == "expire") return scheduler_->Expire(numbers["now"]), Events(scheduler_->TakeEvents());
    if (verb == "limit") return scheduler_->LimitStep(numbers["step"]), "";
    if (verb == "state") return State();
    return "unknown command";
  }

 private:
  std::string Limits(std::map<std::string, int64_t>& n) {
    limits_ = {.context = n["context"],
               .made_for = 1000,
               .sequences = n["sequences"],
               .step_tokens = n["step"],
               .pages = n["pages"],
               .vocab = 100};
    scheduler_ = std::make_unique<Scheduler>(limits_);
    return "";
  }

  std::string Submit(const std::string& name, std::map<std::string, int64_t>& n) {
    Request request;
    const auto mark = static_cast<int32_t>(100 + by_mark_.size());  // a prompt of its own token
    request.prompt.assign(static_cast<size_t>(n["prompt"]), mark);
    by_mark_[mark] = name;
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
      if (step.first_position == 0) {
        by_slot_[step.slot] = by_mark_.at(command_.tokens[static_cast<size_t>(token)]);
      }
      text += (text.empty() ? "" : " ") + by_slot_[step.slot] + ":" +
              std::to_string(step.first_position) + "+" + std::to_string(step.tokens);
      if (step.new_pages > 0) text += "/" + std::to_string(step.new_pages);
      token += step.tokens;
      if (row < command_.rows.size() && command_.rows[row].row == token - 1) {
        rows_.push_back(by_slot_[step.slot]);
        text += "*";
        ++row;
      }
    }
    return text;
  }

  std::string Complete() {
    const Candidate candidate{token_, 1.0f, 1.0f};
    std::vector<Scheduler::RowResult> results;
    for (const std::string& name : rows_) {
      results.push_back({{&candidate, 1}, faulty_ >= 0 && names_[faulty_] == name});
    }
    return Events(scheduler_->Complete(results));
  }

  std::string Step() {
    const std::string begun = Begin(), ended = Complete();
    return ended.empty() ? begun : begun + " -> " + ended;
  }

  std::string Events(const std::vector<TokenEvent>& events) {
    std::string text;
    for (const TokenEvent& event : events) {
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
           std::to_string(scheduler_->preemptions()) + " preempted";
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
  std::map<int32_t, std::string> by_mark_, by_slot_;
  StepCommand command_;
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

// A model of what the executor holds: slots and pages by request, from the commands alone.
class Ledger {
 public:
  explicit Ledger(const SchedulerLimits& limits) : limits_(limits) {}

  void Step(const StepCommand& command) {
    auto page = command.new_pages.begin();
    int64_t tokens = 0;
    std::set<int32_t> slots;
    for (const SequenceStep& step : command.sequences) {
      ASSERT_TRUE(slots.insert(step.slot).second) << "a slot twice in a step";
      ASSERT_LT(step.slot, limits_.sequences);
      ASSERT_GT(step.tokens, 0);
      auto& mine = pages_[step.slot];
      if (step.first_position == 0) mine.clear(), next_[step.slot] = 0;
      ASSERT_EQ(step.first_position, next_[step.slot]) << "a sequence goes on where it was";
      mine.insert(mine.end(), page, page + step.new_pages);
      page += step.new_pages;
      next_[step.slot] += step.tokens;
      ASSERT_EQ(std::ssize(mine), PagesFor(next_[step.slot])) << "pages of all its tokens, no more";
      tokens += step.tokens;
    }
    ASSERT_EQ(page, command.new_pages.end());
    ASSERT_EQ(tokens, std::ssize(command.tokens));
    ASSERT_LE(tokens, limits_.step_tokens);
    // Sequences of a step hold their pages alone.
    std::set<int32_t> used;
    size_t held = 0;
    for (const int32_t slot : slots) {
      used.insert(pages_[slot].begin(), pages_[slot].end());
      held += pages_[slot].size();
    }
    ASSERT_EQ(used.size(), held) << "a page used twice";
  }

 private:
  SchedulerLimits limits_;
  std::map<int32_t, std::vector<int32_t>> pages_;
  std::map<int32_t, int64_t> next_;
};

// 100,000 random steps: requests of all lengths come, are cancelled, miss their deadlines and fail,
// also while a step runs. Nothing is used twice, all ends, and in the end all is free.
TEST(Scheduler, RandomRequests_AllEndAndGiveAllBack) {
  std::mt19937 random(7);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  int64_t steps = 0, preemptions = 0, submitted = 0;
  while (steps < 100000) {
    const SchedulerLimits limits = {.context = 32 + below(300),
                                    .made_for = 1000,
                                    .sequences = 1 + below(8),
                                    .step_tokens = 8 + below(120),
                                    .pages = 1 + below(16),
                                    .vocab = 10};
    Scheduler scheduler(limits);
    Ledger ledger(limits);
    std::set<int64_t> open;
    const auto note = [&](const std::vector<TokenEvent>& events) {
      for (const TokenEvent& event : events) {
        ASSERT_TRUE(open.contains(event.request)) << "an event of a request that has ended";
        if (event.finish != FinishReason::kNone) open.erase(event.request);
      }
    };
    const auto disturb = [&] {
      if (below(20) == 0) scheduler.Cancel(below(submitted + 1));
      if (below(50) == 0) scheduler.Expire(below(1000));
    };
    submitted = 0;
    for (int64_t i = 0; i < 500 || !scheduler.idle(); ++i) {
      if (i < 500 && below(3) == 0) {
        Request request;
        request.prompt.assign(static_cast<size_t>(1 + below(limits.context)), 3);
        request.max_tokens = static_cast<int32_t>(1 + below(120));
        request.client = below(3);
        if (below(4) == 0) request.deadline = below(2000);
        request.stop = {1};
        const Result<int64_t> id = scheduler.Submit(std::move(request));
        if (id.ok()) open.insert(*id), submitted = *id;
      }
      disturb();
      note(scheduler.TakeEvents());
      if (scheduler.idle()) continue;
      const StepCommand command = scheduler.Next();
      ASSERT_NO_FATAL_FAILURE(ledger.Step(command));
      disturb();
      std::vector<Candidate> candidates(command.rows.size());
      std::vector<Scheduler::RowResult> rows;
      for (Candidate& candidate : candidates) {
        candidate.id = below(30) == 0 ? 1 : 5;
        rows.push_back({{&candidate, 1}, below(200) == 0});
      }
      ASSERT_NO_FATAL_FAILURE(note(scheduler.Complete(rows)));
      ++steps;
      ASSERT_LT(i, 100000) << "requests that never end";
    }
    note(scheduler.TakeEvents());
    EXPECT_TRUE(open.empty());
    EXPECT_EQ(scheduler.free_pages(), limits.pages);
    EXPECT_EQ(scheduler.free_slots(), limits.sequences);
    preemptions += scheduler.preemptions();
  }
  EXPECT_GT(preemptions, 300);
}

}  // namespace
}  // namespace trine
