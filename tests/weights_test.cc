// Files and shares: the shard plan's arithmetic, what each rank claims, and the GGUF reader on
// damaged input. The exact messages are in cli_errors_test.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "src/models/model.h"
#include "src/weights/shard_plan.h"
#include "src/weights/weight_store.h"
#include "tests/fixtures.h"

namespace trine {
namespace {

const char* const kTinyFiles[] = {
    "llama3_bf16",        "llama_f16",           "llama_f32",           "llama_q4_k",
    "qwen2_f16b",         "qwen2_q8_0",          "qwen3_f32",           "qwen3_q4_0",
    "qwen3_q4_1",         "qwen3_yarn_f32",      "qwen35_a_rot_pq2_0",  "qwen35_a_rot_tiled_pq2_0",
    "qwen35_a_plain_f16", "qwen35_b_rot_ptq1_0", "qwen35_c_rot_ptq1_0", "qwen35_c_plain_pq2_0"};

std::string TinyPath(const std::string& name) {
  return DataPath("tiny/" + name + ".gguf");
}

bool operator==(const Interval& a, const Interval& b) {
  return a.begin == b.begin && a.end == b.end;
}

// A dense model of one layer, its weights as wide as one head.
ShardDims Dims(int64_t q_heads, int64_t kv_heads, int64_t ffn, int64_t granule, int64_t vocab) {
  ShardDims dims;
  dims.q_heads = q_heads;
  dims.kv_heads = kv_heads;
  dims.q_rows = dims.head_dim;
  dims.ffn = ffn;
  dims.ffn_granule = granule;
  dims.vocab = vocab;
  return dims;
}

std::unique_ptr<Backend> DryBackend() {
  std::string error;
  return MakeCpuBackend({.dry = true}, &error);
}

// A file of these bytes, removed at the end.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& bytes)
      : path_(testing::TempDir() + "/trine_weights_test_" + std::to_string(getpid())) {
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~TemporaryFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// ---- arithmetic

TEST(PartitionUnits, RandomWeights_AsGoodAsAnyCut) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const int64_t units = 1 + random() % 12;
    std::vector<double> weights;
    for (int i = 0; i < 3; ++i) weights.push_back(1 + static_cast<int>(random() % 3));
    std::vector<double> load(3, 0.0);
    const auto cost = [](Interval part) { return static_cast<double>(part.size()); };
    const auto parts = PartitionUnits(units, weights, load, /*may_be_empty=*/false, cost);
    EXPECT_EQ(parts[0].begin, 0);
    EXPECT_EQ(parts[0].end, parts[1].begin);
    EXPECT_EQ(parts[1].end, parts[2].begin);
    EXPECT_EQ(parts[2].end, units);
    const auto worst = [&](int64_t a, int64_t b) {
      return std::max({static_cast<double>(a) / weights[0], static_cast<double>(b - a) / weights[1],
                       static_cast<double>(units - b) / weights[2]});
    };
    const int64_t least = units >= 3 ? 1 : 0;
    double best = 1e9;
    for (int64_t a = least; a <= units; ++a) {
      for (int64_t b = a + least; b + least <= units; ++b) best = std::min(best, worst(a, b));
    }
    EXPECT_EQ(worst(parts[0].end, parts[1].end), best);
  }
}

TEST(ShardPlan, NineHeadsOnTwoRanks_SharesTheMiddleKvHead) {
  const ShardDims smol = Dims(9, 3, 1536, 64, 49152);
  const auto plan = ShardPlan::Make(smol, 2, {});
  ASSERT_TRUE(plan.ok());
  const RankShare &first = plan->share(0), &second = plan->share(1);
  EXPECT_EQ(first.q_heads.size() + second.q_heads.size(), 9);
  EXPECT_TRUE(first.kv_heads == (Interval{0, 2}));
  EXPECT_TRUE(second.kv_heads == (Interval{1, 3}));
  EXPECT_TRUE(first.ffn == (Interval{0, 768}));
  EXPECT_TRUE(second.vocab == (Interval{24576, 49152}));
}

TEST(ShardPlan, MoreRanksThanKvHeads_ReplicatesHeads) {
  const auto plan = ShardPlan::Make(Dims(24, 4, 17408, 256, 248320), 8, {});
  ASSERT_TRUE(plan.ok());
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_TRUE(plan->share(rank).q_heads == (Interval{3 * rank, 3 * rank + 3}));
    EXPECT_TRUE(plan->share(rank).kv_heads == (Interval{rank / 2, rank / 2 + 1}));
  }
}

TEST(ShardPlan, Split_FollowsTheWeights) {
  const std::vector<double> weights = {1, 3};
  const auto plan = ShardPlan::Make(Dims(16, 16, 4096, 256, 16384), 2, weights);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->share(0).q_heads.size(), 4);
  EXPECT_EQ(plan->share(0).ffn.size(), 1024);
  EXPECT_EQ(plan->share(1).vocab.size(), 12288);
}

TEST(ShardPlan, ImpossibleRankCount_NamesUnitAndCounts) {
  EXPECT_EQ(ShardPlan::Make(Dims(9, 3, 1536, 64, 49152), 10, {}).status().message(),
            "attn_q: 9 query heads cannot be shared by 10 ranks; use 1 to 9 ranks");
  EXPECT_EQ(ShardPlan::Make(Dims(9, 3, 160, 32, 49152), 6, {}).status().message(),
            "ffn_down: 5 granules of 32 channels cannot be shared by 6 ranks; use 1 to 5 ranks");
}

// Sharing takes the square of their number.
TEST(ShardPlan, TooManyUnits_AreRefused) {
  const auto error = [](const ShardDims& dims) {
    return ShardPlan::Make(dims, 2, {}).status().message();
  };
  EXPECT_EQ(error(Dims(4097, 1, 1536, 64, 300)),
            "the model has 4097 query heads; at most 4096 are supported");
  EXPECT_EQ(error(Dims(9, 3, 1 << 20, 32, 300)),
            "the model has 32768 granules of FFN channels; at most 4096 are supported");
  EXPECT_EQ(error(Dims(9, 3, 1536, 64, 1 << 23)),
            "the model has 8192 blocks of vocabulary rows; at most 4096 are supported");
  ShardDims rotated = Dims(4096, 1, 1536, 64, 300);
  rotated.head_dim = 256;
  rotated.rotation = 128;
  rotated.rotated_attention = true;
  EXPECT_EQ(error(rotated),
            "the model has 8192 granules of rotated attention outputs; at most 4096 are supported");
}

TEST(FfnGranule, DependsOnWidthAndBlock) {
  EXPECT_EQ(FfnGranule(17408, DType::kPTQ1_0), 256);
  for (const DType type : {DType::kPQ2_0, DType::kQ2_0, DType::kTQ2_0}) {
    EXPECT_EQ(FfnGranule(1024, type), 128);  // packings of the same codes agree
  }
  EXPECT_EQ(FfnGranule(1088, DType::kQ2_0), 64);
  EXPECT_EQ(FfnGranule(17408, DType::kF16), 256);
  EXPECT_EQ(FfnGranule(1536, DType::kQ4_1), 64);
  EXPECT_EQ(FfnGranule(1536, DType::kQ4_K), 256);  // no smaller than the block
  EXPECT_EQ(FfnGranule(200, DType::kF16), 32);
  EXPECT_EQ(FfnGranule(3000, DType::kF16), 128);
}

// ---- claims

struct Coverage {
  std::vector<int> rows, cols;  // how many ranks hold each
};

// Every element of every matrix is held: exactly once, but for what the plan replicates (norms, KV
// heads that two ranks need, row-parallel blocks that a cut runs through).
void CheckCoverage(const WeightStore& store, const ModelPlan& plan) {
  std::map<std::string, Coverage> held;
  for (const auto& claims : plan.claims) {
    for (const Claim& claim : claims) {
      if (claim.streamed) continue;
      const TensorInfo& tensor = *claim.tensor;
      Coverage& coverage = held[tensor.name];
      const bool rows = claim.shard.axis == Axis::kRows;
      const int64_t length = rows && tensor.shape.size() > 1 ? tensor.rows() : tensor.cols();
      auto& counts = rows ? coverage.rows : coverage.cols;
      counts.resize(static_cast<size_t>(length));
      for (const Interval& part : claim.shard.parts) {
        for (int64_t i = part.begin; i < part.end; ++i) ++counts[static_cast<size_t>(i)];
      }
    }
  }
  const auto ranks = static_cast<int>(plan.claims.size());
  for (const auto& [name, coverage] : held) {
    const auto& counts = coverage.rows.empty() ? coverage.cols : coverage.rows;
    const bool kv =
        name.find("attn_k.") != std::string::npos || name.find("attn_v.") != std::string::npos;
    const bool split = name.find("attn_q.b") != std::string::npos || name.ends_with("ssm_a") ||
                       name.ends_with("ssm_dt.bias");
    const bool whole = store.Find(name)->shape.size() == 1 && !split;
    for (const int count : counts) {
      if (kv) {
        EXPECT_GE(count, 1) << name;
        EXPECT_LE(count, ranks) << name;
      } else {
        EXPECT_EQ(count, whole ? ranks : 1) << name;
      }
    }
  }
  for (const TensorInfo& tensor : store.tensors()) {
    EXPECT_TRUE(held.count(tensor.name) == 1 || tensor.name == "token_embd.weight") << tensor.name;
  }
}

TEST(PlanModel, TinyModels_EveryElementOnceOrReplicated) {
  for (const char* name : kTinyFiles) {
    const auto store = OpenWeights(TinyPath(name));
    ASSERT_TRUE(store.ok()) << store.status().message();
    for (const int ranks : {1, 2, 3, 4}) {
      const auto plan = PlanModel(**store, ranks, {}, *DryBackend());
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      CheckCoverage(**store, *plan);
    }
  }
}

// A llama of two layers, described and never written. ffn_down of layer 0 is of type `down`.
WeightStore Described(int64_t ffn, DType down) {
  ModelFiles files;
  files.name = "described";
  const auto key = [&](const char* name, MetaValue value) {
    files.metadata.Insert(std::string("llama.") + name, std::move(value));
  };
  files.metadata.Insert("general.architecture", std::string("llama"));
  key("block_count", int64_t{2});
  key("embedding_length", int64_t{64});
  key("feed_forward_length", ffn);
  key("attention.head_count", int64_t{4});
  key("context_length", int64_t{64});
  key("attention.layer_norm_rms_epsilon", 1e-5);
  const auto tensor = [&](const std::string& name, DType type, std::vector<int64_t> shape) {
    TensorInfo info;
    info.name = name;
    info.type = type;
    info.bytes = RowBytes(type, shape[0]) * (shape.size() > 1 ? shape[1] : 1);
    info.shape = std::move(shape);
    files.tensors.push_back(std::move(info));
  };
  tensor("token_embd.weight", DType::kF16, {64, 300});
  tensor("output_norm.weight", DType::kF32, {64});
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    for (const char* norm : {"attn_norm.weight", "ffn_norm.weight"}) {
      tensor(layer + norm, DType::kF32, {64});
    }
    for (const char* square :
         {"attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight"}) {
      tensor(layer + square, DType::kF16, {64, 64});
    }
    tensor(layer + "ffn_gate.weight", DType::kF16, {64, ffn});
    tensor(layer + "ffn_up.weight", DType::kF16, {64, ffn});
    tensor(layer + "ffn_down.weight", layer == "blk.0." ? down : DType::kF16, {ffn, 64});
  }
  return WeightStore(std::move(files));
}

// Activation groups divide every rank's columns, also where a layer beside the two-bit one would
// have wider granules.
TEST(PlanModel, TwoBitBesideOthersAndOddWidth_NarrowGranules) {
  for (const auto& [ffn, down, granule] :
       {std::tuple{4160, DType::kQ2_0, 64}, {4224, DType::kQ2_0, 256}, {4160, DType::kF16, 256}}) {
    const WeightStore store = Described(ffn, down);
    for (const int ranks : {1, 2, 3}) {
      const auto plan = PlanModel(store, ranks, {}, *DryBackend());
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      EXPECT_EQ(plan->config.ffn_granule, granule);
    }
  }
}

TEST(PlanModel, OneRank_ReadsEveryByteOnce) {
  for (const char* name : kTinyFiles) {
    const auto store = OpenWeights(TinyPath(name));
    ASSERT_TRUE(store.ok());
    const auto plan = PlanModel(**store, 1, {}, *DryBackend());
    ASSERT_TRUE(plan.ok());
    std::map<std::string, int64_t> bytes;
    for (const Claim& claim : plan->claims[0]) {
      if (!claim.streamed) bytes[claim.tensor->name] += claim.bytes;
    }
    for (const auto& [tensor, size] : bytes)
      EXPECT_EQ(size, (*store)->Find(tensor)->bytes) << tensor;
  }
}

// ---- files

TEST(WeightStore, ReadRows_PacksStoredRows) {
  const auto store = OpenWeights(TinyPath("qwen2_q8_0"));
  ASSERT_TRUE(store.ok());
  const TensorInfo& table = *(*store)->Find("token_embd.weight");
  const int64_t row_bytes = RowBytes(table.type, table.cols());
  std::vector<std::byte> whole(static_cast<size_t>(table.bytes));
  ASSERT_TRUE((*store)->Read(table, 0, table.bytes, whole.data()).ok());
  const std::vector<int32_t> rows = {262, 0, 17, 17};
  std::vector<std::byte> packed(static_cast<size_t>(std::ssize(rows) * row_bytes));
  ASSERT_TRUE((*store)->ReadRows(table, rows, packed.data()).ok());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(std::memcmp(&packed[i * static_cast<size_t>(row_bytes)],
                          &whole[static_cast<size_t>(rows[i] * row_bytes)],
                          static_cast<size_t>(row_bytes)),
              0);
  }
}

TEST(ReadGguf, SplitFile_HasTheTensorsOfTheWhole) {
  const auto parts = OpenWeights(DataPath("tiny/llama_split-00001-of-00003.gguf"));
  const auto whole = OpenWeights(TinyPath("llama_f32"));
  ASSERT_TRUE(parts.ok()) << parts.status().message();
  ASSERT_TRUE(whole.ok());
  ASSERT_EQ((*parts)->tensors().size(), (*whole)->tensors().size());
  EXPECT_EQ((*parts)->files().size(), 3u);
  for (const TensorInfo& tensor : (*whole)->tensors()) {
    const TensorInfo* other = (*parts)->Find(tensor.name);
    ASSERT_NE(other, nullptr);
    std::vector<std::byte> a(static_cast<size_t>(tensor.bytes)), b = a;
    ASSERT_TRUE((*whole)->Read(tensor, 0, tensor.bytes, a.data()).ok());
    ASSERT_TRUE((*parts)->Read(*other, 0, tensor.bytes, b.data()).ok());
    EXPECT_EQ(a, b) << tensor.name;
  }
}

TEST(ReadGguf, LaterPartOpenedAlone_IsRefused) {
  const auto store = OpenWeights(DataPath("tiny/llama_split-00002-of-00003.gguf"));
  ASSERT_FALSE(store.ok());
  EXPECT_NE(store.status().message().find("is part 2 of a split model; give the first, whose name "
                                          "ends in -00001-of-00003.gguf"),
            std::string::npos)
      << store.status().message();
}

// Cut anywhere, a file is refused with one line that starts with its path.
TEST(ReadGguf, TruncatedAnywhere_IsRefusedByName) {
  const std::string whole = ReadFile(TinyPath("qwen2_f16b"));
  for (size_t cut = 0; cut < whole.size(); cut += cut < 2000 ? 1 : 1009) {
    const TemporaryFile file(whole.substr(0, cut));
    const auto store = OpenWeights(file.path());
    ASSERT_FALSE(store.ok()) << cut;
    ASSERT_EQ(store.status().message().find(file.path()), 0u) << store.status().message();
    ASSERT_EQ(store.status().message().find('\n'), std::string::npos);
  }
}

// Random bytes of the header flipped: an answer or an error, never a crash. The sanitizer builds
// give this its teeth.
TEST(ReadGguf, FlippedBytes_NeverCrash) {
  const std::string whole = ReadFile(TinyPath("qwen2_f16b"));
  std::mt19937 random(2);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = whole;
    for (int i = 0; i < 1 + round % 4; ++i) {
      bytes[random() % (round % 2 == 0 ? 4096 : bytes.size())] = static_cast<char>(random());
    }
    const TemporaryFile file(bytes);
    const auto store = OpenWeights(file.path());
    if (!store.ok() || !PlanModel(**store, 2, {}, *DryBackend()).ok()) ++refused;
  }
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace trine
