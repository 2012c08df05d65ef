// Conversion between containers and types: what must come back the same, what must compute the
// same, what is refused. Fixtures: tests/oracle/make_tiny_hf.py, make_tiny_qwen35.py.
#include "src/convert/convert.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "src/convert/row_converter.h"
#include "src/weights/gguf_writer.h"
#include "src/weights/row_codec.h"
#include "tests/fixtures.h"
#include "tests/job.h"

namespace trine {
namespace {

namespace fs = std::filesystem;

const char* const kHfModels[] = {"llama", "qwen2", "qwen3", "qwen35", "qwen35_text"};

std::string HfPath(const std::string& name) {
  return DataPath("hf/" + name);
}
std::string TinyPath(const std::string& name) {
  return DataPath("tiny/" + name + ".gguf");
}

class ConvertTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Out(const std::string& name) const { return folder_ + "/" + name; }

  // The message of an error; "" if there is none.
  std::string Run(const std::string& input, const std::string& output,
                  std::optional<DType> type = {}, int64_t shard_bytes = int64_t{1} << 40) {
    const Result<Conversion> made = Convert({input, output, type, shard_bytes, /*threads=*/2}, {});
    if (made.ok()) last_ = *made;
    return made.ok() ? "" : made.status().message();
  }

  Conversion last_;

 private:
  const std::string folder_ = testing::TempDir() + "/trine_convert_" + std::to_string(getpid());
};

// name -> type, shape and bytes, as the store has them.
std::map<std::string, std::string> TensorsOf(const std::string& path) {
  const auto store = OpenWeights(path);
  EXPECT_TRUE(store.ok()) << store.status().message();
  std::map<std::string, std::string> tensors;
  if (!store.ok()) return tensors;
  for (const TensorInfo& tensor : (*store)->tensors()) {
    std::string bytes(static_cast<size_t>(tensor.bytes), '\0');
    EXPECT_TRUE(
        (*store)->Read(tensor, 0, tensor.bytes, reinterpret_cast<std::byte*>(bytes.data())).ok());
    tensors[tensor.name] = Info(tensor.type).name + ShapeText(tensor.shape) + bytes;
  }
  return tensors;
}

Logits LogitsOf(const std::string& path, const Tokens& tokens, Compute compute, int ranks = 1) {
  SessionOptions options;
  options.model = path;
  options.compute = compute;
  options.kv_type = compute == Compute::kF32 ? KvType::kF32 : KvType::kF16;
  options.context = 0;
  options.step_tokens = 256;
  options.logit_rows = 256;
  std::vector<Logits> logits;
  const Status status =
      RunJob(ranks, options, [&](Session& session) { logits = Evaluate(session, {tokens}, 256); });
  EXPECT_TRUE(status.ok()) << status.message();
  return logits.empty() ? Logits{} : logits[0];
}

// Largest difference, of the largest value.
double RelativeError(const Logits& logits, const Logits& expected) {
  EXPECT_EQ(logits.size(), expected.size());
  double worst = 0, largest = 0;
  for (size_t i = 0; i < std::min(logits.size(), expected.size()); ++i) {
    worst = std::max(worst, std::fabs(static_cast<double>(logits[i]) - expected[i]));
    largest = std::max(largest, std::fabs(static_cast<double>(expected[i])));
  }
  return worst / largest;
}

// Root of the mean square of the difference, of that of the values.
double MeanSquareError(const Logits& logits, const Logits& expected) {
  double error = 0, all = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(static_cast<double>(logits[i]) - expected[i], 2);
    all += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(error / all);
}

Tokens TokensOf(const std::string& list, const std::string& name) {
  return ReadJson(DataPath(list))[name]["tokens"];
}

TEST_F(ConvertTest, HuggingFaceToGgufAndBack_SameFiles) {
  for (const std::string name : kHfModels) {
    SCOPED_TRACE(name);
    ASSERT_EQ(Run(HfPath(name), Out(name + ".gguf")), "");
    ASSERT_EQ(Run(Out(name + ".gguf"), Out(name)), "");
    if (fs::exists(HfPath(name) + "/model.safetensors")) {
      EXPECT_EQ(ReadFile(Out(name) + "/model.safetensors"),
                ReadFile(HfPath(name) + "/model.safetensors"));
    } else {
      EXPECT_EQ(TensorsOf(Out(name)), TensorsOf(HfPath(name)));
    }
  }
}

// GGUF's llama has its rows of q and k in another order, so its sums are taken in another order;
// everything else is the same to the bit.
TEST_F(ConvertTest, BothContainers_SameLogits) {
  for (const std::string name : kHfModels) {
    SCOPED_TRACE(name);
    ASSERT_EQ(Run(HfPath(name), Out(name + ".gguf")), "");
    const Tokens tokens = TokensOf("hf/hf.json", name);
    const auto expected = ReadArray<float>(DataPath("hf/" + name + ".logits"));
    const Logits gguf = LogitsOf(Out(name + ".gguf"), tokens, Compute::kF32);
    EXPECT_LE(RelativeError(gguf, expected), 1e-5);
    if (name == "llama") continue;
    EXPECT_EQ(gguf, LogitsOf(HfPath(name), tokens, Compute::kF32));
  }
}

TEST_F(ConvertTest, TernaryPackings_ComeBackToTheSameFile) {
  for (const std::string name :
       {"qwen35_a_rot_ptq1_0", "qwen35_b_rot_ptq1_0", "qwen35_c_rot_ptq1_0"}) {
    SCOPED_TRACE(name);
    ASSERT_EQ(Run(TinyPath(name), Out("first.gguf"), DType::kPTQ1_0), "");  // keys in our order
    ASSERT_EQ(Run(Out("first.gguf"), Out("pq2.gguf"), DType::kPQ2_0), "");
    ASSERT_EQ(Run(Out("pq2.gguf"), Out("q2.gguf"), DType::kQ2_0), "");
    ASSERT_EQ(Run(Out("q2.gguf"), Out("last.gguf"), DType::kPTQ1_0), "");
    EXPECT_EQ(ReadFile(Out("first.gguf")), ReadFile(Out("last.gguf")));
    EXPECT_EQ(TensorsOf(TinyPath(name)), TensorsOf(Out("last.gguf")));
    EXPECT_NE(TensorsOf(Out("pq2.gguf")), TensorsOf(Out("q2.gguf")));
  }
}

// The oracle's files of the same weights.
TEST_F(ConvertTest, Transcoding_GivesTheOraclesTensors) {
  ASSERT_EQ(Run(TinyPath("qwen35_a_rot_ptq1_0"), Out("a.gguf"), DType::kPQ2_0), "");
  EXPECT_EQ(TensorsOf(Out("a.gguf")), TensorsOf(TinyPath("qwen35_a_rot_pq2_0")));
  ASSERT_EQ(Run(TinyPath("qwen35_a_rot_pq2_0"), Out("a.gguf"), DType::kQ2_0), "");
  EXPECT_EQ(TensorsOf(Out("a.gguf")), TensorsOf(TinyPath("qwen35_a_rot_q2_0")));
}

// Trits times an f16 scale are f16 numbers, so nothing is lost on the way through F16, and ternary
// values are found again in it.
TEST_F(ConvertTest, TernaryToF16AndBack_SameTensors) {
  const std::string ternary = TinyPath("qwen35_a_rot_ptq1_0");
  ASSERT_EQ(Run(ternary, Out("f16.gguf"), DType::kF16), "");
  ASSERT_EQ(Run(Out("f16.gguf"), Out("again.gguf"), DType::kPTQ1_0), "");
  auto again = TensorsOf(Out("again.gguf")), expected = TensorsOf(ternary);
  // The gates were BF16 and went through F16, which has fewer exponents and more digits.
  for (const auto& [name, bytes] : expected) {
    if (name.find("ssm_alpha") != std::string::npos || name.find("ssm_beta") != std::string::npos) {
      again.erase(name);
    }
  }
  for (const auto& [name, bytes] : again) EXPECT_EQ(bytes, expected[name]) << name;
  EXPECT_LT(again.size(), expected.size());
}

// In f32 an exported model differs from the rotated one by roundings of f32, in the rotation and
// in sums of other terms: as F32_MatchesTransformers, 1e-5 at worst. In F16 a weight is off by up
// to 2^-11 of itself, 2^-11 / sqrt(3) in the mean square; the errors of the 40 or so matrices on
// the way add up like independent ones, to 1.8e-3 in the mean square, and norms of the narrow heads
// of these models may double it.
TEST_F(ConvertTest, UnrotatedExport_SameLogits) {
  const std::pair<const char*, const char*> models[] = {
      {"qwen35_a_rot_ptq1_0", "qwen35_a_rot"},
      {"qwen35_a_rot_tiled_pq2_0", "qwen35_a_rot_tiled"},
      {"qwen35_b_rot_ptq1_0", "qwen35_b_rot"},
      {"qwen35_c_rot_ptq1_0", "qwen35_c_rot"},
      {"qwen3_rot_f32", ""}};
  for (const auto& [name, reference] : models) {
    SCOPED_TRACE(name);
    const std::string list = std::string(reference).empty() ? "tiny/tiny.json" : "tiny/qwen35.json";
    const Tokens tokens = TokensOf(list, name);
    const Logits expected =
        std::string(reference).empty()
            ? LogitsOf(TinyPath(name), tokens, Compute::kF32)
            : ReadArray<float>(DataPath("tiny/" + std::string(reference) + ".logits"));
    ASSERT_EQ(Run(TinyPath(name), Out(name), DType::kF32, /*shard_bytes=*/200000), "");
    EXPECT_GT(std::distance(fs::directory_iterator(Out(name)), {}), 5);  // several shards
    const Logits exact = LogitsOf(Out(name), tokens, Compute::kF32);
    EXPECT_LE(RelativeError(exact, expected), 1e-5);
    EXPECT_EQ(exact, LogitsOf(Out(name), tokens, Compute::kF32, 2));
    fs::remove_all(Out(name));
    ASSERT_EQ(Run(TinyPath(name), Out(name)), "");
    const Logits rounded = LogitsOf(Out(name), tokens, Compute::kF32);
    std::printf("%s: export in f32 off by %.1e, in f16 by %.1e; mean square %.1e\n", name,
                RelativeError(exact, expected), RelativeError(rounded, expected),
                MeanSquareError(rounded, expected));
    EXPECT_LE(MeanSquareError(rounded, expected), 3.6e-3);
    EXPECT_GT(MeanSquareError(rounded, expected), 0);
  }
}

TEST_F(ConvertTest, MultiTokenBlocks_AreLeftOut) {
  ASSERT_EQ(Run(TinyPath("qwen35_a_mtp_pq2_0"), Out("mtp")), "");
  ASSERT_EQ(Run(TinyPath("qwen35_a_plain_pq2_0"), Out("plain")), "");
  EXPECT_EQ(TensorsOf(Out("mtp")), TensorsOf(Out("plain")));
  ASSERT_EQ(Run(TinyPath("qwen35_a_mtp_pq2_0"), Out("mtp.gguf"), DType::kPTQ1_0), "");
  EXPECT_EQ(TensorsOf(Out("mtp.gguf")).size(), TensorsOf(TinyPath("qwen35_a_mtp_pq2_0")).size());
}

TEST_F(ConvertTest, WhatDoesNotFit_IsRefusedByName) {
  const auto holds = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  holds(
      Run(TinyPath("qwen35_c_rot_ptq1_0"), Out("x.gguf"), DType::kTQ1_0),
      "does not fit into TQ1_0, whose blocks of 256 values have one scale and codes of their own; "
      "choose q2_0, which holds all");
  holds(Run(TinyPath("llama_q4_k"), Out("x.gguf"), DType::kQ2_0), "nothing is rounded to Q2_0");
  holds(Run(TinyPath("qwen3_f32"), Out("x"), DType::kQ8_0), "Q8_0 has no place in safetensors");
  holds(Run(TinyPath("qwen2_f16b"), Out("x")),
        "attn_output.bias' has no place in Qwen2ForCausalLM");
  EXPECT_FALSE(fs::exists(Out("x.gguf")) || fs::exists(Out("x.gguf.partial")) ||
               fs::exists(Out("x")));
  holds(Run(HfPath("qwen3"), Out("x")), "is a folder of safetensors already; name an OUT.gguf");
  ASSERT_EQ(Run(TinyPath("qwen3_f32"), Out("x")), "");
  holds(Run(TinyPath("qwen3_f32"), Out("x")), "is there already; remove it or name another output");
  holds(Run(Out("x"), Out("x")), "is the model that is converted");
}

// A file with an embedding in F16 beside ternary matrices, as they are found.
TEST_F(ConvertTest, MixedTypes_OnlyTernaryOnesChange) {
  const auto store = OpenWeights(TinyPath("qwen35_a_rot_ptq1_0"));
  ASSERT_TRUE(store.ok());
  auto plan = PlanConversion(**store, Container::kGguf, DType::kF16);
  ASSERT_TRUE(plan.ok());
  std::vector<TensorInfo> tensors;
  for (ConvertedTensor& tensor : plan->tensors) {
    if (tensor.out.name != "token_embd.weight") tensor.out.type = tensor.in->type;
    tensor.out.bytes = tensor.in->elements() / Info(tensor.out.type).block_elems *
                       Info(tensor.out.type).block_bytes;
    tensors.push_back(tensor.out);
  }
  RowConverter converter(**store, 1, {});
  const Status written = WriteGguf(Out("mixed.gguf"), plan->metadata, tensors,
                                   [&](size_t index, const ByteSink& sink) {
                                     return converter.Convert(plan->tensors[index], sink);
                                   });
  ASSERT_TRUE(written.ok()) << written.message();
  ASSERT_EQ(Run(Out("mixed.gguf"), Out("q2.gguf"), DType::kQ2_0), "");
  EXPECT_EQ(std::count(last_.kept.begin(), last_.kept.end(), "token_embd.weight"), 1);
  auto mixed = TensorsOf(Out("q2.gguf")), expected = TensorsOf(TinyPath("qwen35_a_rot_q2_0"));
  EXPECT_EQ(mixed["token_embd.weight"], TensorsOf(Out("mixed.gguf"))["token_embd.weight"]);
  mixed.erase("token_embd.weight");
  expected.erase("token_embd.weight");
  EXPECT_EQ(mixed, expected);
  ASSERT_EQ(Run(Out("mixed.gguf"), Out("hf")), "");  // any type per tensor
}

// transformers would leave out what config.json does not announce.
TEST_F(ConvertTest, BiasesOfSomeLayers_AreRefused) {
  const auto store = OpenWeights(TinyPath("llama_f16"));
  ASSERT_TRUE(store.ok());
  std::vector<TensorInfo> tensors = (*store)->tensors();
  const size_t stored = tensors.size();
  for (const char* role : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
    const std::string name = "blk.1." + std::string(role);
    TensorInfo bias;
    bias.name = name + ".bias";
    bias.shape = {(*store)->Find(name + ".weight")->rows()};
    tensors.push_back(bias);
  }
  const auto produce = [&](size_t index, const ByteSink& sink) {
    std::vector<std::byte> bytes(static_cast<size_t>(4 * tensors[index].shape[0]));
    if (index < stored) {
      bytes.resize(static_cast<size_t>(tensors[index].bytes));
      const Status read = (*store)->Read(tensors[index], 0, tensors[index].bytes, bytes.data());
      if (!read.ok()) return read;
    }
    return sink(bytes);
  };
  ASSERT_TRUE(WriteGguf(Out("some.gguf"), (*store)->metadata(), tensors, produce).ok());
  EXPECT_EQ(Run(Out("some.gguf"), Out("x")),
            Out("some.gguf") +
                ": 'blk.1.attn_k.bias' is there and 'blk.0.attn_k.bias' is not; "
                "LlamaForCausalLM has all biases of attention or none");
}

// Two values of scale in a block are one where one of them scales only zeros.
TEST(RowCodec, ScalesOfZeros_DoNotCount) {
  CodedRow row(4);
  for (size_t i = 0; i < row.size(); ++i) {
    row[i].scale = static_cast<uint16_t>(0x3C00 + i);
    for (int c = 0; c < kCodedUnit; ++c) row[i].Put(c, i == 2 ? (c % 3) : 1);
  }
  std::byte block[54];
  ASSERT_TRUE(EncodeCodes(DType::kTQ1_0, row, block));
  CodedRow back(4);
  DecodeCodes(DType::kTQ1_0, block, back);
  for (const formats::TwoBitUnit& unit : back) EXPECT_EQ(unit.scale, 0x3C02);
  row[0].eighths[0] = 0;
  EXPECT_FALSE(EncodeCodes(DType::kTQ1_0, row, block));
}

TEST(Conventions, StoredValues_AreShortAndComeBack) {
  for (const StoredAs stored_as : {StoredAs::kLessOne, StoredAs::kLogOfNegative}) {
    for (const float stored : {-3.0f, -0.0546875f, 0.001953125f, 0.75f, 2.765625f}) {
      std::vector<float> values = {stored};
      FromStored(stored_as, values);
      ToStored(stored_as, values);
      EXPECT_EQ(values[0], stored);
    }
  }
}

}  // namespace
}  // namespace trine
