// Model: a network on this rank. The forward pass is the same code at every rank count; layers
// carry the sharding in their type (layers.h). A new architecture is one file and one line in
// model.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "comm/seals.h"
#include "kernels/backend.h"
#include "src/core/result.h"
#include "src/models/step_batch.h"
#include "src/weights/shard_plan.h"
#include "src/weights/weight_loader.h"
#include "src/weights/weight_store.h"

namespace trine {

// The dimensions and constants of a decoder, read from metadata and checked against each other.
struct ModelConfig {
  std::string architecture;
  int layers = 0;
  int64_t hidden = 0;
  int64_t ffn = 0;
  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab = 0;        // rows of token_embd
  int64_t context = 0;      // tokens the model was made for
  int64_t ffn_granule = 0;  // channels of ffn_down summed in f32 before they are rounded
  float norm_eps = 0;
  bool output_gate = false;  // attn_q holds a gate as wide as the query, head by head

  // Of hybrids: which layers are recurrent (empty: none), and the heads of those.
  std::vector<bool> recurrent;
  int64_t key_heads = 0;
  int64_t value_heads = 0;  // a multiple of key_heads
  int64_t delta_dim = 0;    // of keys and values
  int64_t conv_taps = 0;
  int ignored_blocks = 0;  // behind the layers, for multi-token prediction

  bool is_recurrent(int layer) const {
    return !recurrent.empty() && recurrent[static_cast<size_t>(layer)];
  }
  int recurrent_layers() const {
    return static_cast<int>(std::count(recurrent.begin(), recurrent.end(), true));
  }
};

// What the engine lets a step hold; buffers are sized by it once.
struct StepLimits {
  int64_t tokens = 0;      // per step
  int64_t logit_rows = 0;  // per step
};

// Everything a layer may touch.
struct RankContext {
  RankContext(Backend& on, Communicator& with, const StepLimits& step, KvType type = KvType::kF16)
      : backend(on), comm(with), limits(step), kv_type(type), seals(with.world()) {}

  Backend& backend;
  Communicator& comm;
  StepLimits limits;
  KvType kv_type;
  Seals seals;  // of the collectives so far
};

class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelConfig& config() const = 0;
  virtual int kv_layers() const = 0;
  virtual KvLayout kv_layout() const = 0;
  virtual int delta_layers() const = 0;
  virtual DeltaLayout delta_layout() const = 0;
  virtual Interval vocab_shard() const = 0;  // rows of the vocabulary this rank computes

  // One step; collective. logits [R, vocab_shard().size()]. Neither batch nor memory is kept.
  virtual void Forward(const StepBatch& batch, const SequenceMemory& memory, F32View logits) = 0;
};

// What one rank is to build: its shares, and the columns that its head outputs are cut in.
struct RankPlan {
  const ModelConfig& config;
  const RankShare& share;
  const HeadColumns& attention_columns;
  const HeadColumns& delta_columns;
  int rank = 0;
};

// The plan of a file for a rank count: shares, and what each rank will read.
struct ModelPlan {
  ModelConfig config;
  Rotation rotation;
  ShardDims dims;
  ShardPlan shards;
  std::vector<std::vector<Claim>> claims;  // by rank

  int ranks() const { return shards.ranks(); }
  RankPlan ForRank(int rank) const {
    return {config, shards.share(rank), shards.attention_columns(), shards.delta_columns(), rank};
  }
};

// From headers alone. `dry` is a dry backend of the kind that will load, see Backend::dry. Errors
// name what is missing, wrong or unknown, or the rank counts that work. `unexpected`: as of
// WeightLoader::Finish; for one rank.
Result<ModelPlan> PlanModel(const WeightStore& store, int ranks, const std::vector<double>& weights,
                            Backend& dry, std::vector<std::string>* unexpected = nullptr);

// Builds this rank's part on its backend, and so loads it; blocks on the disk. `rank` is
// context.comm's, or any if the backend is dry. `context` must outlive the model, and so must
// `store`: embedding rows are read from it while running.
Result<std::unique_ptr<Model>> LoadModel(const WeightStore& store, const ModelPlan& plan, int rank,
                                         RankContext& context,
                                         std::function<void(int64_t bytes)> progress);

// ---- for the files of the architectures

// Builds the layers of one rank.
using ModelBuilder = std::unique_ptr<Model> (*)(const RankPlan& plan, WeightLoader& loader,
                                                RankContext& context);

std::unique_ptr<Model> BuildLlama(const RankPlan&, WeightLoader&, RankContext&);
std::unique_ptr<Model> BuildQwen2(const RankPlan&, WeightLoader&, RankContext&);
std::unique_ptr<Model> BuildQwen3(const RankPlan&, WeightLoader&, RankContext&);
std::unique_ptr<Model> BuildQwen35(const RankPlan&, WeightLoader&, RankContext&);

// What qwen35's metadata has beside that of the others. Checked, like the rest.
Status ReadQwen35Config(const Metadata& meta, ModelConfig& config);

// An integer of 1 to 2^31 - 1; the error names the key.
Result<int64_t> PositiveKey(const Metadata& meta, const std::string& key);

}  // namespace trine
