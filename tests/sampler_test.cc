// The sampler: its filters one by one, and the whole of it, over a vocabulary cut into shards,
// against a plain sampler that sorts all tokens.
#include "src/engine/sampler.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "comm/communicator.h"
#include "kernels/gumbel.h"
#include "src/engine/candidate_exchange.h"

namespace trine {
namespace {

// ---- the filters

std::vector<Candidate> Ranked(const std::vector<float>& logits) {
  std::vector<Candidate> candidates;
  for (const float logit : logits) {
    candidates.push_back({static_cast<int32_t>(candidates.size()), logit, logit});
  }
  return candidates;
}

std::set<int32_t> Drawn(const std::vector<Candidate>& candidates, const SamplingParams& params) {
  std::set<int32_t> ids;
  for (int32_t position = 0; position < 3000; ++position) {
    ids.insert(PickCandidate({candidates}, params, position).id);
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
  params.min_p = 0;
  // The surprises are 1, 2, 3, 4, 4 bits, their mean 1.875: token 1 is the nearest, then 0.
  params.typical_p = 0.2f;
  EXPECT_EQ(Drawn(candidates, params), (std::set<int32_t>{1}));
  params.typical_p = 0.3f;
  EXPECT_EQ(Drawn(candidates, params), (std::set<int32_t>{0, 1}));
  params.typical_p = 0.9f;  // 3 and 4 are equals
  EXPECT_EQ(Drawn(candidates, params), (std::set<int32_t>{0, 1, 2, 3, 4}));
  params.typical_p = 0.2f;
  params.temperature = 0;
  EXPECT_EQ(Drawn(candidates, params), (std::set<int32_t>{0}));
}

// Behind typical, top-p is of what is left, and min-p is relative to the best that is left.
TEST(Sampler, FiltersFollowEachOther) {
  // Odds 0.6, three of 0.05 (whose surprise is the nearest to the mean), 37 of 0.01.
  std::vector<float> logits(41, std::log(0.01f));
  logits[0] = std::log(0.6f);
  for (size_t i = 1; i < 4; ++i) logits[i] = std::log(0.05f);
  SamplingParams params{.temperature = 1, .top_k = 41, .typical_p = 0.1f, .top_p = 1, .min_p = 0};
  EXPECT_EQ(Drawn(Ranked(logits), params), (std::set<int32_t>{1, 2, 3}));
  params.top_p = 0.5f;
  EXPECT_EQ(Drawn(Ranked(logits), params), (std::set<int32_t>{1, 2}));
  params.top_p = 1;
  params.min_p = 0.9f;
  EXPECT_EQ(Drawn(Ranked(logits), params), (std::set<int32_t>{1, 2, 3}));
}

TEST(Sampler, Row_AsksForWhatThePickNeeds) {
  const auto row = [](const SamplingParams& params) {
    std::vector<LogitChange> changes;
    return MakeLogitRow(params, {}, 5000, changes);
  };
  EXPECT_EQ(row({.temperature = 0}).spec.count, 1);
  EXPECT_EQ(row({.temperature = 1, .top_k = 40}).spec.count, 40);
  EXPECT_EQ(row({.temperature = 1, .top_k = 9000}).spec.count, 5000);
  const LogitRow draw = row({.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0});
  EXPECT_EQ(draw.spec.count, 1);
  EXPECT_EQ(draw.spec.temperature, 1);
  const LogitRow top_p = row({.temperature = 1, .top_k = 0, .top_p = 0.5f, .min_p = 0});
  EXPECT_EQ(top_p.spec.count, 256);
  EXPECT_TRUE(top_p.spec.log_sums);
  EXPECT_EQ(top_p.top_p, 0.5f);
  const LogitRow min_p = row({.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0.5f});
  EXPECT_EQ(min_p.spec.count, 256);
  EXPECT_FALSE(min_p.spec.log_sums);
  EXPECT_EQ(row({.temperature = 1, .top_k = 0, .typical_p = 0.5f}).spec.count, 5000);
  EXPECT_EQ(draw.logprobs, -1);
  EXPECT_EQ(row({.top_logprobs = 9000}).logprobs, 5000);
}

TEST(Sampler, Changes_AreOneEntryAToken) {
  SamplingParams params{.presence_penalty = 1, .min_tokens = 2};
  params.repeat_last_n = 4;
  params.logit_bias = {{8, 2}, {5, 1}, {8, -0.5f}, {3, 1}};
  const std::vector<int32_t> tokens = {8, 5, 7, 5, 9}, stop = {3, 11};
  std::vector<LogitChange> changes = {{100, 1, 0}};  // of another row
  const LogitRow row = MakeLogitRow(params, {tokens, 4, stop}, 50, changes);
  ASSERT_EQ(row.changes, 6);
  ASSERT_EQ(changes.size(), 7u);
  const LogitChange expected[] = {{100, 1, 0}, {3, 0, -INFINITY}, {5, 2, 1},         {7, 1, 0},
                                  {8, 0, 1.5}, {9, 1, 0},         {11, 0, -INFINITY}};
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(changes[i].id, expected[i].id);
    EXPECT_EQ(changes[i].count, expected[i].count);
    EXPECT_EQ(changes[i].bias, expected[i].bias);
  }
  // Two tokens have been generated: the end may come.
  changes.clear();
  MakeLogitRow(params, {tokens, 3, stop}, 50, changes);
  EXPECT_EQ(changes[0].bias, 1);
  EXPECT_EQ(changes.back().id, 9);
}

TEST(Sampler, BadParameters_AreNamed) {
  const auto message = [](const SamplingParams& params) {
    return CheckSampling(params, 10).message();
  };
  EXPECT_EQ(message({}), "");
  EXPECT_EQ(message({.logit_bias = {{9, -INFINITY}, {0, -1e38f}}}), "");
  EXPECT_EQ(message({.top_p = NAN}), "top_p is nan; give a finite number");
  EXPECT_EQ(message({.repeat_penalty = 0}),
            "repeat_penalty is 0.000000; give a number above 0, 1 to turn it off");
  EXPECT_EQ(message({.logit_bias = {{10, 1}}}),
            "logit_bias has token 10, the vocabulary 10 tokens; give ids from 0 to 9");
  EXPECT_EQ(message({.logit_bias = {{9, INFINITY}}}),
            "logit_bias of token 9 is inf; give a finite number, or -inf to ban it");
}

// ---- the distribution

// Pearson's statistic of `counts` against probabilities, and that it is no larger than its mean
// (the degrees of freedom) and five standard deviations.
void ExpectFollows(const std::vector<int>& counts, const std::vector<double>& probabilities) {
  double total = 0, statistic = 0;
  for (const int count : counts) total += count;
  int freedom = -1;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * total;
    if (expected == 0) {
      EXPECT_EQ(counts[i], 0) << i;
      continue;
    }
    statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
    ++freedom;
  }
  EXPECT_LT(statistic, freedom + 5 * std::sqrt(2.0 * freedom));
}

// softmax(logits / temperature) of the first `kept`.
std::vector<double> Softmax(const std::vector<float>& logits, double temperature, size_t kept) {
  std::vector<double> odds(logits.size(), 0);
  double total = 0;
  for (size_t i = 0; i < kept; ++i) total += odds[i] = std::exp(logits[i] / temperature);
  for (double& odd : odds) odd /= total;
  return odds;
}

// 40,000 draws each: of positions, of seeds, and of choices with one seed. What one draw gives says
// nothing of the next: the pairs follow the product of their probabilities.
TEST(Sampler, Draws_FollowTheSoftmaxAndAreIndependent) {
  const std::vector<float> logits = {2, 1, 0.5f, 0, -1, -3};
  const auto candidates = Ranked(logits);
  const SamplingParams params{.temperature = 2, .top_k = 6, .top_p = 1, .min_p = 0.03f};
  const std::vector<double> expected = Softmax(logits, 2, 5);
  using Draw = std::function<void(SamplingParams&, int32_t & position, int32_t i)>;
  const Draw draws[] = {
      [](SamplingParams&, int32_t& position, int32_t i) { position = i; },
      [](SamplingParams& p, int32_t&, int32_t i) { p.seed = static_cast<uint64_t>(i); },
      [](SamplingParams& p, int32_t&, int32_t i) { p.choice = i; }};
  for (const Draw& set : draws) {
    std::vector<int> counts(6), pairs(36);
    int32_t before = 0;
    for (int32_t i = 0; i < 40000; ++i) {
      SamplingParams varied = params;
      int32_t position = 7;
      set(varied, position, i);
      const int32_t id = PickCandidate({candidates}, varied, position).id;
      ++counts[static_cast<size_t>(id)];
      if (i % 2 == 1) ++pairs[static_cast<size_t>(6 * before + id)];
      before = id;
    }
    ExpectFollows(counts, expected);
    std::vector<double> products;
    for (const double a : expected) {
      for (const double b : expected) products.push_back(a * b);
    }
    ExpectFollows(pairs, products);
  }
}

// ---- the whole sampler, over shards

// What a sequence asks at one step.
struct Case {
  SamplingParams params;
  std::vector<int32_t> tokens, stop;
  int64_t prompt = 0;
  int32_t scored = -1;  // >= 0: it is of the prompt, whose next token this is
  std::vector<float> logits;
};

struct Vocabulary {
  int64_t size = 0;
  std::vector<uint8_t> allowed;
  std::vector<std::vector<Case>> steps;
};

struct Outcome {
  int32_t id = -1;
  size_t candidates = 0;
  TokenLogprobs logprobs;
};

std::vector<Interval> Shards(int64_t vocab, int ranks, std::mt19937& random) {
  std::vector<int64_t> cuts = {0, LogSumBlocks(vocab)};
  for (int i = 1; i < ranks; ++i) {
    cuts.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(cuts[1] + 1)));
  }
  std::sort(cuts.begin(), cuts.end());
  std::vector<Interval> shards;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    shards.push_back(
        {std::min(vocab, cuts[i] * kVocabBlock), std::min(vocab, cuts[i + 1] * kVocabBlock)});
  }
  return shards;
}

StepCommand MakeCommand(const std::vector<Case>& step, int64_t vocab) {
  StepCommand command;
  for (const Case& row : step) {
    const TextSoFar text{row.tokens, row.prompt, row.stop};
    command.rows.push_back(row.scored >= 0
                               ? MakePromptRow(row.params, row.scored, vocab)
                               : MakeLogitRow(row.params, text, vocab, command.changes));
  }
  return command;
}

Outcome Read(const Case& row, const RowResult& result) {
  Outcome outcome;
  outcome.candidates = result.candidates.size();
  Candidate token = result.target;
  if (row.scored < 0) {
    token = PickCandidate(result, row.params, static_cast<int32_t>(row.tokens.size()));
    outcome.id = token.id;
  }
  const bool wanted = (row.scored < 0 ? row.params.top_logprobs : row.params.prompt_logprobs) >= 0;
  if (wanted) outcome.logprobs = MakeLogprobs(result, token);
  return outcome;
}

// Every case of every step, by ranks that hold the shards.
std::vector<Outcome> Sample(const Vocabulary& vocabulary, const std::vector<Interval>& shards) {
  std::vector<Outcome> outcomes;
  std::vector<ThreadRank> ranks = MakeThreadRanks(static_cast<int>(shards.size()));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const auto backend = MakeCpuBackend({}, nullptr);
      const Interval shard = shards[rank];
      Seals seals(ranks[rank].comm->world());
      SealedGather gather(*ranks[rank].comm, seals);
      CandidateExchange exchange(*backend, gather, seals.world(), shard, shards,
                                 vocabulary.allowed);
      for (const auto& step : vocabulary.steps) {
        const StepCommand command = MakeCommand(step, vocabulary.size);
        std::vector<float> logits;
        for (const Case& row : step) {
          logits.insert(logits.end(), row.logits.begin() + shard.begin,
                        row.logits.begin() + shard.end);
        }
        std::vector<RowResult> results(step.size());
        exchange.Run(command, {logits.data(), std::ssize(step), shard.size(), shard.size()},
                     results);
        if (rank != 0) continue;
        for (size_t i = 0; i < step.size(); ++i) outcomes.push_back(Read(step[i], results[i]));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

// ---- a plain sampler of the whole vocabulary

struct Token {
  int32_t id;
  double logit;
  long double p = 0;
};

// Bias and penalties, straight from their definitions.
float ChangedLogit(const Case& row, int32_t id) {
  const SamplingParams& params = row.params;
  double x = row.logits[static_cast<size_t>(id)];
  for (const TokenBias& bias : params.logit_bias) x += bias.id == id ? bias.bias : 0.0f;
  const bool may_end = std::ssize(row.tokens) - row.prompt >= params.min_tokens;
  if (!may_end && std::count(row.stop.begin(), row.stop.end(), id) > 0) return -INFINITY;
  int64_t seen = 0;
  for (size_t i = 0; i < row.tokens.size(); ++i) {
    const bool near = params.repeat_last_n < 0 ||
                      static_cast<int64_t>(row.tokens.size() - i) <= params.repeat_last_n;
    seen += near && row.tokens[i] == id ? 1 : 0;
  }
  if (seen > 0 && x > 0)
    x /= params.repeat_penalty;
  else if (seen > 0)
    x *= params.repeat_penalty;
  if (seen > 0)
    x -= params.presence_penalty + double{params.frequency_penalty} * static_cast<double>(seen);
  return static_cast<float>(x);
}

void Normalise(std::vector<Token>& tokens) {
  long double total = 0, largest = -INFINITY;
  for (const Token& token : tokens) largest = std::max<long double>(largest, token.logit);
  for (Token& token : tokens) total += token.p = std::exp(token.logit - largest);
  for (Token& token : tokens) token.p /= total;
}

void KeepTypical(std::vector<Token>& tokens, float typical_p) {
  Normalise(tokens);
  long double entropy = 0;
  for (const Token& token : tokens) entropy -= token.p * std::log(token.p);
  std::vector<Token> sorted = tokens;
  const auto distance = [&](const Token& t) { return std::fabs(-std::log(t.p) - entropy); };
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const Token& a, const Token& b) { return distance(a) < distance(b); });
  std::set<double> kept;  // their logits
  long double mass = 0;
  for (size_t i = 0; i < sorted.size() && (i == 0 || mass < typical_p); ++i) {
    kept.insert(sorted[i].logit);
    mass += sorted[i].p;
  }
  std::erase_if(tokens, [&](const Token& token) { return !kept.contains(token.logit); });
}

void KeepTopP(std::vector<Token>& tokens, float top_p) {
  Normalise(tokens);
  long double mass = 0;
  for (size_t kept = 0; kept < tokens.size(); ++kept) {
    if (kept > 0 && mass >= top_p) return tokens.resize(kept);
    mass += tokens[kept].p;
  }
}

int32_t PlainSample(const Case& row, const std::vector<uint8_t>& allowed) {
  const SamplingParams& params = row.params;
  std::vector<Token> tokens;
  for (int32_t id = 0; id < static_cast<int32_t>(allowed.size()); ++id) {
    if (allowed[static_cast<size_t>(id)] != 0) tokens.push_back({id, ChangedLogit(row, id)});
  }
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const Token& a, const Token& b) { return a.logit > b.logit; });
  const int32_t best = tokens[0].id;
  std::erase_if(tokens, [](const Token& token) { return token.logit == -INFINITY; });
  if (params.temperature <= 0 || tokens.empty()) return best;
  if (params.top_k > 0) tokens.resize(std::min<size_t>(tokens.size(), params.top_k), Token{});
  if (params.typical_p < 1) KeepTypical(tokens, params.typical_p);
  if (params.top_p < 1) KeepTopP(tokens, params.top_p);
  const double largest = tokens[0].logit;
  std::erase_if(tokens, [&](const Token& token) {
    return token.logit < largest && std::exp(token.logit - largest) < params.min_p;
  });
  std::map<double, int32_t> drawn;
  for (const Token& token : tokens) {
    const auto position = static_cast<int32_t>(row.tokens.size());
    drawn.emplace(token.logit / params.temperature +
                      GumbelNoise(params.seed, params.choice, position, token.id),
                  token.id);
  }
  return drawn.rbegin()->second;
}

// Log-softmax of what the model gave, and the order of the likeliest.
void ExpectPlainLogprobs(const Case& row, const std::vector<uint8_t>& allowed,
                         const Outcome& outcome) {
  const int32_t wanted = row.scored < 0 ? row.params.top_logprobs : row.params.prompt_logprobs;
  const int32_t id = row.scored < 0 ? outcome.id : row.scored;
  ASSERT_EQ(outcome.logprobs.token.id, wanted < 0 ? -1 : id);
  if (wanted < 0) return;
  std::vector<Token> tokens;
  for (size_t i = 0; i < allowed.size(); ++i) {
    if (allowed[i] != 0) tokens.push_back({static_cast<int32_t>(i), row.logits[i]});
  }
  long double largest = -INFINITY, sum = 0;
  for (const Token& token : tokens) largest = std::max<long double>(largest, token.logit);
  for (const Token& token : tokens) sum += std::exp(token.logit - largest);
  const double log_sum = static_cast<double>(largest + std::log(sum));
  const auto expect = [&](const TokenLogprob& got, double logit) {
    const double logprob = logit - log_sum;
    EXPECT_NEAR(got.logprob, logprob, 1e-7 * std::max(1.0, std::fabs(logprob)));
  };
  if (allowed[static_cast<size_t>(id)] != 0) {
    expect(outcome.logprobs.token, row.logits[static_cast<size_t>(id)]);
  } else {
    EXPECT_EQ(outcome.logprobs.token.logprob, -INFINITY);
  }
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const Token& a, const Token& b) { return a.logit > b.logit; });
  ASSERT_EQ(outcome.logprobs.top.size(), std::min<size_t>(tokens.size(), wanted));
  for (size_t i = 0; i < outcome.logprobs.top.size(); ++i) {
    EXPECT_EQ(outcome.logprobs.top[i].id, tokens[i].id);
    expect(outcome.logprobs.top[i], tokens[i].logit);
  }
}

// ---- random cases

class RandomCases {
 public:
  explicit RandomCases(std::mt19937& random) : random_(random) {}

  Vocabulary Make(int64_t size, int steps) {
    Vocabulary vocabulary;
    vocabulary.size = size;
    for (int64_t i = 0; i < size; ++i) vocabulary.allowed.push_back(Below(20) == 0 ? 0 : 1);
    vocabulary.allowed[static_cast<size_t>(Below(size))] = 1;
    for (int i = 0; i < steps; ++i) {
      std::vector<Case>& step = vocabulary.steps.emplace_back();
      for (int64_t rows = 1 + Below(9); rows > 0; --rows) step.push_back(MakeCase(size));
    }
    return vocabulary;
  }

 private:
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  template <typename T>
  T OneOf(std::initializer_list<T> values) {
    return values.begin()[Below(static_cast<int64_t>(values.size()))];
  }
  int32_t Id(int64_t vocab) { return static_cast<int32_t>(Below(vocab)); }

  // Flat to steep; some with many equals.
  std::vector<float> Logits(int64_t vocab) {
    std::normal_distribution<float> normal(0, OneOf({0.0f, 0.1f, 1.0f, 3.0f, 10.0f}));
    const bool equals = Below(3) == 0;
    std::vector<float> logits;
    for (int64_t i = 0; i < vocab; ++i) {
      logits.push_back(equals ? std::round(normal(random_)) : normal(random_));
    }
    return logits;
  }

  void Bias(int64_t vocab, SamplingParams& params) {
    for (int64_t n = Below(20); n > 0; --n) {
      params.logit_bias.push_back(
          {Id(vocab), OneOf({-INFINITY, -100.0f, -1.5f, 0.7f, 3.0f, 8.0f})});
    }
    if (Below(5) > 0) return;
    // All are banned but a few, or none.
    const int64_t left = Below(4);
    for (int32_t id = 0; id < vocab; ++id) {
      if (Below(vocab) >= left) params.logit_bias.push_back({id, -INFINITY});
    }
  }

  Case MakeCase(int64_t vocab) {
    Case row;
    SamplingParams& params = row.params;
    row.logits = Logits(vocab);
    for (int64_t n = Below(100); n > 0; --n) row.tokens.push_back(Id(vocab));
    row.prompt = Below(std::ssize(row.tokens) + 1);
    params.temperature = OneOf({0.0f, 0.3f, 0.7f, 1.0f, 2.0f});
    params.top_k = OneOf({0, 0, 0, 0, 0, 1, 2, 40, 300, 100000});
    params.typical_p = OneOf({1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 0.2f, 0.9f, 0.999f});
    params.top_p = OneOf({1.0f, 1.0f, 0.1f, 0.53f, 0.9f, 0.99f});
    params.min_p = OneOf({0.0f, 0.0f, 1e-5f, 0.05f, 0.6f, 1.0f});
    params.repeat_penalty = OneOf({1.0f, 1.0f, 1.3f, 0.8f});
    params.repeat_last_n = OneOf({-1, 0, 5, 64});
    params.presence_penalty = OneOf({0.0f, 0.0f, 0.5f});
    params.frequency_penalty = OneOf({0.0f, 0.0f, -0.2f});
    if (Below(3) == 0) Bias(vocab, params);
    if (Below(3) == 0) {
      params.min_tokens = static_cast<int32_t>(Below(60));
      std::set<int32_t> stop;
      for (int64_t n = Below(4); n > 0; --n) stop.insert(Id(vocab));
      row.stop.assign(stop.begin(), stop.end());
    }
    params.seed = random_();
    params.choice = static_cast<int32_t>(Below(4));
    params.top_logprobs = OneOf({-1, -1, 0, 3, 300});
    if (Below(8) == 0) {
      row.scored = Id(vocab);
      params.prompt_logprobs = OneOf({0, 1, 20});
    }
    return row;
  }

  std::mt19937& random_;
};

bool Same(const TokenLogprob& a, const TokenLogprob& b) {
  return a.id == b.id && a.logprob == b.logprob;
}

// Thousands of random steps. Ranks get whole blocks of the vocabulary, or none.
TEST(Sampler, AnyShards_GiveWhatAPlainSamplerGives) {
  std::mt19937 random(1);
  RandomCases cases(random);
  int64_t rows = 0, second_rounds = 0;
  for (const int64_t size : {1, 2, 9, 255, 256, 257, 1000, 1024, 1025, 2048, 3000, 4500, 6000}) {
    const Vocabulary vocabulary = cases.Make(size, 50);
    const std::vector<Outcome> whole = Sample(vocabulary, {{0, size}});
    size_t i = 0;
    for (const auto& step : vocabulary.steps) {
      for (const Case& row : step) {
        SCOPED_TRACE("case " + std::to_string(i) + " of " + std::to_string(size) + " tokens");
        const Outcome& outcome = whole[i++];
        const int32_t expected = row.scored < 0 ? PlainSample(row, vocabulary.allowed) : -1;
        EXPECT_EQ(outcome.id, expected);
        ASSERT_NO_FATAL_FAILURE(ExpectPlainLogprobs(row, vocabulary.allowed, outcome));
        const bool searched = row.params.top_k <= 0 && row.params.typical_p >= 1;
        second_rounds += searched && outcome.candidates > 256 ? 1 : 0;
      }
    }
    rows += std::ssize(whole);
    for (const int ranks : {2, 3, 5}) {
      const std::vector<Outcome> sharded = Sample(vocabulary, Shards(size, ranks, random));
      ASSERT_EQ(sharded.size(), whole.size());
      for (i = 0; i < whole.size(); ++i) {
        EXPECT_EQ(sharded[i].id, whole[i].id) << ranks << " ranks, case " << i;
        EXPECT_TRUE(Same(sharded[i].logprobs.token, whole[i].logprobs.token));
        EXPECT_TRUE(std::equal(sharded[i].logprobs.top.begin(), sharded[i].logprobs.top.end(),
                               whole[i].logprobs.top.begin(), whole[i].logprobs.top.end(), Same));
      }
    }
  }
  EXPECT_GT(rows, 3000);
  EXPECT_GT(second_rounds, 100);
}

}  // namespace
}  // namespace trine
