// The models against transformers, and against themselves: the same bits at every rank count, in
// any chunks, beside any neighbour. Fixtures: tests/oracle/make_tiny*.py.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "src/weights/weight_store.h"
#include "tests/fixtures.h"
#include "tests/job.h"

namespace trine {
namespace {

struct Tiny {
  std::string name, path;
  Tokens tokens;
  std::vector<int32_t> greedy;
  std::string logits;  // path
};

std::vector<Tiny> TinyModels() {
  std::vector<Tiny> models;
  const auto add = [&](const std::string& list, const std::string& folder,
                       const std::string& prefix, const std::string& suffix) {
    const nlohmann::json all = ReadJson(DataPath(list));
    for (const auto& [name, entry] : all.items()) {
      models.push_back({prefix + name, DataPath(folder + name + suffix), entry["tokens"],
                        entry["greedy"],
                        DataPath(folder + entry.value("logits", name + ".logits"))});
    }
  };
  add("tiny/tiny.json", "tiny/", "", ".gguf");
  add("tiny/qwen35.json", "tiny/", "", ".gguf");
  add("hf/hf.json", "hf/", "hf_", "");
  return models;
}

SessionOptions Options(const std::string& path, Compute compute) {
  SessionOptions options;
  options.model = path;
  options.compute = compute;
  options.kv_type = compute == Compute::kF32 ? KvType::kF32 : KvType::kF16;
  options.context = 0;
  options.sequences = 2;
  options.step_tokens = 256;
  options.logit_rows = 256;
  return options;
}

std::vector<Logits> EvaluateFile(const SessionOptions& options, int ranks,
                                 const std::vector<Tokens>& sequences, int64_t chunk) {
  std::vector<Logits> logits;
  const Status status = RunJob(
      ranks, options, [&](Session& session) { logits = Evaluate(session, sequences, chunk); });
  EXPECT_TRUE(status.ok()) << status.message();
  return logits;
}

bool SameBits(const Logits& a, const Logits& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class TinyModel : public testing::TestWithParam<Tiny> {
 protected:
  const std::string& path() const { return GetParam().path; }
};

// 1e-5 of the largest logit: f32 sums of a few hundred terms over a handful of layers stay an order
// below; the reference is float64 over the same dequantised weights. A flushed f16 subnormal moves
// the logits by 4e-4 and more, every other mistake that was tried in the oracle by 1e-2 and more.
TEST_P(TinyModel, F32_MatchesTransformers) {
  const auto expected = ReadArray<float>(GetParam().logits);
  const Logits logits =
      EvaluateFile(Options(path(), Compute::kF32), 1, {GetParam().tokens}, 256)[0];
  ASSERT_EQ(logits.size(), expected.size());
  double worst = 0, largest = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    worst = std::max(worst, std::fabs(static_cast<double>(logits[i]) - expected[i]));
    largest = std::max(largest, std::fabs(static_cast<double>(expected[i])));
  }
  RecordProperty("relative_error", std::to_string(worst / largest));
  std::printf("%s: relative error %.2e\n", GetParam().name.c_str(), worst / largest);
  EXPECT_LE(worst, 1e-5 * largest);
}

TEST_P(TinyModel, F32_GreedyMatchesTransformers) {
  SessionOptions options = Options(path(), Compute::kF32);
  std::vector<int32_t> tokens;
  const Status status = RunJob(2, options, [&](Session& session) {
    Scheduler scheduler(session.scheduler_limits());
    Request request;
    request.prompt = GetParam().tokens;
    request.max_tokens = static_cast<int32_t>(GetParam().greedy.size());
    request.sampling.temperature = 0;
    ASSERT_TRUE(scheduler.Submit(std::move(request)).ok());
    while (!scheduler.idle()) {
      for (const TokenEvent& event : session.Step(scheduler)) tokens.push_back(event.token);
    }
  });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(tokens, GetParam().greedy);
}

TEST_P(TinyModel, RankCounts_SameBits) {
  for (const Compute compute : {Compute::kInteger, Compute::kF32}) {
    const SessionOptions options = Options(path(), compute);
    const Logits one = EvaluateFile(options, 1, {GetParam().tokens}, 256)[0];
    for (const int ranks : {2, 3, 4}) {
      const auto many = EvaluateFile(options, ranks, {GetParam().tokens}, 256);
      EXPECT_TRUE(SameBits(one, many[0])) << ranks << " ranks";
    }
  }
}

TEST_P(TinyModel, ChunkedPrefill_SameBits) {
  const SessionOptions options = Options(path(), Compute::kInteger);
  const Logits whole = EvaluateFile(options, 2, {GetParam().tokens}, 256)[0];
  for (const int64_t chunk : {1, 3, 31}) {
    EXPECT_TRUE(SameBits(whole, EvaluateFile(options, 2, {GetParam().tokens}, chunk)[0]))
        << "chunks of " << chunk;
  }
}

TEST_P(TinyModel, SideBySide_SameBits) {
  const SessionOptions options = Options(path(), Compute::kInteger);
  Tokens other(GetParam().tokens.rbegin(), GetParam().tokens.rend() - 5);
  const Logits alone = EvaluateFile(options, 1, {GetParam().tokens}, 256)[0];
  const Logits other_alone = EvaluateFile(options, 1, {other}, 256)[0];
  for (const int ranks : {1, 3}) {
    const auto both = EvaluateFile(options, ranks, {GetParam().tokens, other}, 7);
    EXPECT_TRUE(SameBits(alone, both[0]));
    EXPECT_TRUE(SameBits(other_alone, both[1]));
  }
}

// A cache of Q8_0, on other ranks, in other chunks and beside another sequence.
TEST_P(TinyModel, Q8Cache_SameBits) {
  SessionOptions options = Options(path(), Compute::kInteger);
  const Logits f16 = EvaluateFile(options, 1, {GetParam().tokens}, 256)[0];
  options.kv_type = KvType::kQ8_0;
  const Logits one = EvaluateFile(options, 1, {GetParam().tokens}, 256)[0];
  EXPECT_FALSE(SameBits(one, f16));
  const Tokens other(GetParam().tokens.rbegin(), GetParam().tokens.rend() - 5);
  for (const int ranks : {1, 2, 3}) {
    EXPECT_TRUE(SameBits(one, EvaluateFile(options, ranks, {GetParam().tokens}, 256)[0])) << ranks;
    EXPECT_TRUE(SameBits(one, EvaluateFile(options, ranks, {GetParam().tokens, other}, 7)[0]))
        << ranks << " ranks, chunks of 7";
  }
}

TEST_P(TinyModel, UnevenSplit_SameBits) {
  SessionOptions options = Options(path(), Compute::kInteger);
  const Logits even = EvaluateFile(options, 1, {GetParam().tokens}, 256)[0];
  options.split = {1, 2.5};
  EXPECT_TRUE(SameBits(even, EvaluateFile(options, 2, {GetParam().tokens}, 256)[0]));
}

INSTANTIATE_TEST_SUITE_P(All, TinyModel, testing::ValuesIn(TinyModels()),
                         [](const auto& model) { return model.param.name; });

// The same trits in three packings are one model, bit for bit; so is one with blocks of multi-token
// prediction behind it that are left out.
TEST(Qwen35, OtherPackingsOfTheSameWeights_SameBits) {
  const std::pair<const char*, const char*> pairs[] = {
      {"qwen35_a_rot_pq2_0", "qwen35_a_rot_ptq1_0"},
      {"qwen35_a_rot_pq2_0", "qwen35_a_rot_q2_0"},
      {"qwen35_b_rot_pq2_0", "qwen35_b_rot_ptq1_0"},
      {"qwen35_a_plain_pq2_0", "qwen35_a_mtp_pq2_0"},
  };
  for (const auto& [first, second] : pairs) {
    const Tokens tokens = ReadJson(DataPath("tiny/qwen35.json"))[first]["tokens"];
    for (const Compute compute : {Compute::kInteger, Compute::kF32}) {
      const auto evaluate = [&](const std::string& name, int ranks) {
        const SessionOptions options = Options(DataPath("tiny/" + name + ".gguf"), compute);
        return EvaluateFile(options, ranks, {tokens}, 256)[0];
      };
      const Logits expected = evaluate(first, 1);
      EXPECT_TRUE(SameBits(expected, evaluate(second, 1))) << second;
      EXPECT_TRUE(SameBits(expected, evaluate(second, 3))) << second;
    }
  }
}

// The file with type id 42 in place of every PQ2_0: what that format was first published as.
std::string AsFirstPublished(const std::string& path) {
  std::string bytes = ReadFile(path);
  const auto store = OpenWeights(path);
  EXPECT_TRUE(store.ok());
  for (const TensorInfo& tensor : (*store)->tensors()) {
    if (tensor.type != DType::kPQ2_0) continue;
    // The length of the name (u64), the name, dimensions (u32), their sizes (u64 each), the type
    // (u32). Keys may list names, but they come first.
    const std::string length{static_cast<char>(tensor.name.size()), 0, 0, 0, 0, 0, 0, 0};
    const size_t name = bytes.rfind(length + tensor.name) + 8;
    const size_t type = name + tensor.name.size() + 4 + 8 * tensor.shape.size();
    EXPECT_EQ(static_cast<uint8_t>(bytes[type]), Info(DType::kPQ2_0).ggml_id);
    bytes[type] = static_cast<char>(Info(DType::kQ2_0).ggml_id);
  }
  return bytes;
}

TEST(Qwen35, FirstPublishedTypeId_SameBits) {
  const std::string name = "qwen35_a_rot_pq2_0", path = DataPath("tiny/" + name + ".gguf");
  const std::string old_path =
      testing::TempDir() + "/trine_model_test_" + std::to_string(getpid()) + ".gguf";
  std::ofstream(old_path, std::ios::binary) << AsFirstPublished(path);
  const Tokens tokens = ReadJson(DataPath("tiny/qwen35.json"))[name]["tokens"];
  const Logits expected = EvaluateFile(Options(path, Compute::kInteger), 1, {tokens}, 256)[0];
  for (const int ranks : {1, 2}) {
    const auto logits = EvaluateFile(Options(old_path, Compute::kInteger), ranks, {tokens}, 256);
    EXPECT_TRUE(SameBits(expected, logits[0])) << ranks << " ranks";
  }
  std::remove(old_path.c_str());
}

// A sequence begins with nothing of the one that had its slot before.
TEST(Qwen35, SlotUsedAgain_SameBits) {
  const std::string name = "qwen35_a_plain_pq2_0";
  const Tokens tokens = ReadJson(DataPath("tiny/qwen35.json"))[name]["tokens"];
  const Tokens other(tokens.rbegin(), tokens.rend() - 5);
  const SessionOptions options = Options(DataPath("tiny/" + name + ".gguf"), Compute::kInteger);
  std::vector<Logits> first, again;
  const Status status = RunJob(2, options, [&](Session& session) {
    first = Evaluate(session, {tokens}, 31);
    Evaluate(session, {other}, 31);
    again = Evaluate(session, {tokens}, 31);
  });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(SameBits(first[0], again[0]));
}

TEST(SplitFile, ThreeParts_SameBitsAsOneFile) {
  const Tiny whole = TinyModels()[2];
  ASSERT_EQ(whole.name, "llama_f32");
  const Logits one = EvaluateFile(Options(DataPath("tiny/llama_f32.gguf"), Compute::kInteger), 1,
                                  {whole.tokens}, 256)[0];
  const Logits parts =
      EvaluateFile(Options(DataPath("tiny/llama_split-00001-of-00003.gguf"), Compute::kInteger), 2,
                   {whole.tokens}, 256)[0];
  EXPECT_TRUE(SameBits(one, parts));
}

// ---- the real model

class Smol : public testing::Test {
 protected:
  void SetUp() override {
    TRINE_SKIP_WITHOUT_SMOL();
    fixture_ = ReadJson(DataPath("smollm2.json"));
  }

  static std::vector<int32_t> Generate(Session& session, const Tokens& prompt, int32_t count) {
    Scheduler scheduler(session.scheduler_limits());
    Request request;
    request.prompt = prompt;
    request.max_tokens = count;
    request.sampling.temperature = 0;
    EXPECT_TRUE(scheduler.Submit(std::move(request)).ok());
    std::vector<int32_t> tokens;
    while (!scheduler.idle()) {
      for (const TokenEvent& event : session.Step(scheduler)) tokens.push_back(event.token);
    }
    return tokens;
  }

  nlohmann::json fixture_;
};

TEST_F(Smol, F32Greedy_MatchesTransformersTokenForToken) {
  SessionOptions options = Options(SmolPath(), Compute::kF32);
  options.threads = 2;
  const Status status = RunJob(1, options, [&](Session& session) {
    for (const auto& prompt : fixture_["prompts"]) {
      const auto ids =
          session.tokenizer().Encode(prompt["text"].get<std::string>(), Tokenizer::Special::kParse);
      ASSERT_TRUE(ids.ok());
      EXPECT_EQ(*ids, prompt["ids"].get<Tokens>());
      EXPECT_EQ(Generate(session, *ids, 64), prompt["greedy"].get<Tokens>());
    }
  });
  ASSERT_TRUE(status.ok()) << status.message();
}

TEST_F(Smol, RankCounts_SameBits) {
  const Tokens tokens = fixture_["prompts"][0]["ids"];
  const SessionOptions options = Options(SmolPath(), Compute::kInteger);
  const Logits one = EvaluateFile(options, 1, {tokens}, 256)[0];
  for (const int ranks : {2, 3, 4}) {
    EXPECT_TRUE(SameBits(one, EvaluateFile(options, ranks, {tokens}, 256)[0])) << ranks;
  }
  EXPECT_TRUE(SameBits(one, EvaluateFile(options, 2, {tokens}, 1)[0]));
  EXPECT_TRUE(SameBits(one, EvaluateFile(options, 2, {tokens, {1, 2, 3}}, 5)[0]));
}

// Mean over positions of sum p ln(p / q), p from f32, q from integer activations.
TEST_F(Smol, IntegerActivations_SmallDivergenceFromF32) {
  Tokens tokens;
  for (const auto& prompt : fixture_["prompts"]) {
    for (const int32_t id : prompt["ids"]) tokens.push_back(id);
    for (const int32_t id : prompt["greedy"]) tokens.push_back(id);
  }
  tokens.resize(std::min<size_t>(tokens.size(), 512));
  SessionOptions options = Options(SmolPath(), Compute::kF32);
  const Logits reference = EvaluateFile(options, 1, {tokens}, 256)[0];
  options = Options(SmolPath(), Compute::kInteger);
  const Logits logits = EvaluateFile(options, 1, {tokens}, 256)[0];
  const size_t vocab = reference.size() / tokens.size();
  double total = 0, worst = 0;
  for (size_t t = 0; t < tokens.size(); ++t) {
    const float *p = &reference[t * vocab], *q = &logits[t * vocab];
    const auto log_sum = [&](const float* row) {
      const double most = *std::max_element(row, row + vocab);
      double sum = 0;
      for (size_t i = 0; i < vocab; ++i) sum += std::exp(row[i] - most);
      return most + std::log(sum);
    };
    const double p_sum = log_sum(p), q_sum = log_sum(q);
    double divergence = 0;
    for (size_t i = 0; i < vocab; ++i) {
      divergence += std::exp(p[i] - p_sum) * ((p[i] - p_sum) - (q[i] - q_sum));
    }
    total += divergence;
    worst = std::max(worst, divergence);
  }
  std::printf("mean KL %.2e, max %.2e over %zu positions\n",
              total / static_cast<double>(tokens.size()), worst, tokens.size());
  EXPECT_GT(total, 0);
  EXPECT_LE(total / static_cast<double>(tokens.size()), 1e-3);
}

}  // namespace
}  // namespace trine
