// Model: a network on this rank. The forward pass is the same code at every rank count; layers
// carry the sharding in their type (layers.h). A new architecture is one file and one line in
// model.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
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
};

// What the engine lets a step hold; buffers are sized by it once.
struct StepLimits {
  int64_t tokens = 0;      // per step
  int64_t logit_rows = 0;  // per step
};

// Everything a layer may touch.
struct RankContext {
  Backend& backend;
  Communicator& comm;
  StepLimits limits;
  KvType kv_type = KvType::kF16;
};

class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelConfig& config() const = 0;
  virtual int kv_layers() const = 0;
  virtual KvLayout kv_layout() const = 0;
  virtual int delta_layers() const { return 0; }
  virtual DeltaLayout delta_layout() const { return {}; }
  virtual Interval vocab_shard() const = 0;  // rows of the vocabulary this rank computes

  // One step; collective. logits [R, vocab_shard().size()]. Neither batch nor memory is kept.
  virtual void Forward(const StepBatch& batch, const SequenceMemory& memory, F32View logits) = 0;
};

// The plan of a file for a rank count: shares, and what each rank will read.
struct ModelPlan {
  ModelConfig config;
  std::vector<RankShare> shares;           // by rank
  std::vector<std::vector<Claim>> claims;  // by rank
};

// From headers alone. Errors name what is missing, wrong or unknown, or the rank counts that work.
Result<ModelPlan> PlanModel(const WeightStore& store, int ranks,
                            const std::vector<double>& weights);

// Loads this rank's part; blocks on the disk. `context` must outlive the model, and so must
// `store`: embedding rows are read from it while running.
Result<std::unique_ptr<Model>> LoadModel(const WeightStore& store, const ModelPlan& plan,
                                         RankContext& context,
                                         std::function<void(int64_t bytes)> progress);

// ---- for the files of the architectures

// Builds the layers of one rank. Called with a planning loader too; then context is nullptr.
using ModelBuilder = std::unique_ptr<Model> (*)(const ModelConfig& config, const RankShare& share,
                                                const WeightStore& store, WeightLoader& loader,
                                                RankContext* context);

std::unique_ptr<Model> BuildLlama(const ModelConfig&, const RankShare&, const WeightStore&,
                                  WeightLoader&, RankContext*);
std::unique_ptr<Model> BuildQwen2(const ModelConfig&, const RankShare&, const WeightStore&,
                                  WeightLoader&, RankContext*);
std::unique_ptr<Model> BuildQwen3(const ModelConfig&, const RankShare&, const WeightStore&,
                                  WeightLoader&, RankContext*);

}  // namespace trine
