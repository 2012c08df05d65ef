// TimedBackend: stands before a backend, forwards every call and adds up how long each class of
// operations takes on the host. Only the benchmark puts it there (SessionOptions::decorate), so no
// other run pays for its two looks at the clock per operation.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace trine {

// linear: all matrix products, the head's too; delta: Gated DeltaNet with its convolution; rope:
// and the write of keys and values; other: element by element, copies, embedding rows.
enum class OpClass { kLinear, kAttention, kDelta, kNorm, kRotation, kRope, kCandidates, kOther };
inline constexpr std::array<const char*, 8> kOpClassNames = {
    "linear", "attention", "delta", "norm", "rotation", "rope", "candidates", "other"};

using OpTimes = std::array<int64_t, kOpClassNames.size()>;  // nanoseconds

class TimedBackend final : public Backend {
 public:
  explicit TimedBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  const OpTimes& times() const { return times_; }
  void Clear() { times_ = {}; }

  // ReadThrough of every weight that was loaded; they must still exist.
  void ReadWeights() {
    for (const Weight* weight : weights_) inner_->ReadThrough(*weight);
  }

  std::string Describe() const override { return inner_->Describe(); }
  int threads() const override { return inner_->threads(); }
  Buffer Allocate(int64_t bytes) override { return inner_->Allocate(bytes); }
  int64_t allocated() const override { return inner_->allocated(); }
  bool dry() const override { return inner_->dry(); }
  LoadedWeight LoadWeight(const WeightDesc& desc, const RowReader& reader) override;
  void Upload(const void* host, int64_t bytes, void* to) override {
    inner_->Upload(host, bytes, to);
  }
  void ReadThrough(const Weight& weight) override { inner_->ReadThrough(weight); }
  Breach breach() const override { return inner_->breach(); }
  int64_t KvPageBytes(const KvLayout& layout) const override { return inner_->KvPageBytes(layout); }

  void DecodeRows(DType type, const std::byte* packed, F32View out) override;
  void Linear(F32View x, std::span<const LinearTask> tasks) override;
  void LinearPartial(F32View x, const Weight& weight, int64_t seal, I64View out) override;
  void RmsNorm(F32View x, const float* w, float eps, F32View out) override;
  void AddPartialNorm(F32View x, I64View partial, int64_t seal, const float* bias, const float* w,
                      float eps, F32View out, std::span<int32_t> row_faults) override;
  void SealPart(F32View x, int64_t seal, float* to) override;
  void CheckPart(const float* part, int64_t floats, int64_t seal) override;
  void RopeAngles(const TokenPlaces& places, const RopeParams& rope, F32View angles) override;
  void Rope(F32View x, F32View angles, const RopeParams& rope) override;
  void WriteKv(F32View k, F32View v, const TokenPlaces& places, const KvPages& pages) override;
  void PagedAttention(F32View q, std::span<const int32_t> kv_heads, float scale,
                      const TokenPlaces& places, const KvPages& pages, F32View out) override;
  void Rotate(F32View x, const float* signs, int64_t block, Rotation direction,
              F32View out) override;
  void CausalConvSilu(F32View x, const float* weights, const TokenPlaces& places,
                      const DeltaStates& states) override;
  void DeltaGates(F32View decay, F32View beta, const float* rate, const float* bias) override;
  void GatedDeltaRule(F32View qkv, F32View decay, F32View beta, const TokenPlaces& places,
                      const DeltaStates& states, F32View out) override;
  void SigmoidMul(F32View gate, F32View x) override;
  void SiluMul(F32View gate, F32View up, F32View out) override;
  void Copy(F32View x, F32View out) override;
  void SelectRows(F32View x, std::span<const int32_t> rows, F32View out) override;
  void TopCandidates(F32View logits, int32_t first_id, const uint8_t* allowed,
                     std::span<const CandidateSpec> specs, Candidate* out, LogSum* sums) override;

 private:
  const std::unique_ptr<Backend> inner_;
  OpTimes times_{};
  std::vector<const Weight*> weights_;
};

}  // namespace trine
