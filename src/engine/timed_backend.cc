#include "src/engine/timed_backend.h"

#include <chrono>

namespace trine {
namespace {

// Adds the time of its own life to a class.
class Timer {
 public:
  Timer(OpTimes& times, OpClass op) : total_(times[static_cast<size_t>(op)]) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() {
    total_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  int64_t& total_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

LoadedWeight TimedBackend::LoadWeight(const WeightDesc& desc, const RowReader& reader) {
  LoadedWeight loaded = inner_->LoadWeight(desc, reader);
  if (loaded.weight != nullptr) weights_.push_back(loaded.weight.get());
  return loaded;
}

void TimedBackend::DecodeRows(DType type, const std::byte* packed, F32View out) {
  const Timer timer(times_, OpClass::kOther);
  inner_->DecodeRows(type, packed, out);
}

void TimedBackend::Linear(F32View x, std::span<const LinearTask> tasks) {
  const Timer timer(times_, OpClass::kLinear);
  inner_->Linear(x, tasks);
}

void TimedBackend::LinearPartial(F32View x, const Weight& weight, int64_t seal, I64View out) {
  const Timer timer(times_, OpClass::kLinear);
  inner_->LinearPartial(x, weight, seal, out);
}

void TimedBackend::RmsNorm(F32View x, const float* w, float eps, F32View out) {
  const Timer timer(times_, OpClass::kNorm);
  inner_->RmsNorm(x, w, eps, out);
}

void TimedBackend::AddPartialNorm(F32View x, I64View partial, int64_t seal, const float* bias,
                                  const float* w, float eps, F32View out,
                                  std::span<int32_t> row_faults) {
  const Timer timer(times_, OpClass::kNorm);
  inner_->AddPartialNorm(x, partial, seal, bias, w, eps, out, row_faults);
}

void TimedBackend::SealPart(F32View x, int64_t seal, float* to) {
  const Timer timer(times_, OpClass::kOther);
  inner_->SealPart(x, seal, to);
}

void TimedBackend::CheckPart(const float* part, int64_t floats, int64_t seal) {
  const Timer timer(times_, OpClass::kOther);
  inner_->CheckPart(part, floats, seal);
}

void TimedBackend::RopeAngles(const TokenPlaces& places, const RopeParams& rope, F32View angles) {
  const Timer timer(times_, OpClass::kRope);
  inner_->RopeAngles(places, rope, angles);
}

void TimedBackend::Rope(F32View x, F32View angles, const RopeParams& rope) {
  const Timer timer(times_, OpClass::kRope);
  inner_->Rope(x, angles, rope);
}

void TimedBackend::WriteKv(F32View k, F32View v, const TokenPlaces& places, const KvPages& pages) {
  const Timer timer(times_, OpClass::kRope);
  inner_->WriteKv(k, v, places, pages);
}

void TimedBackend::PagedAttention(F32View q, std::span<const int32_t> kv_heads, float scale,
                                  const TokenPlaces& places, const KvPages& pages, F32View out) {
  const Timer timer(times_, OpClass::kAttention);
  inner_->PagedAttention(q, kv_heads, scale, places, pages, out);
}

void TimedBackend::Rotate(F32View x, const float* signs, int64_t block, Rotation direction,
                          F32View out) {
  const Timer timer(times_, OpClass::kRotation);
  inner_->Rotate(x, signs, block, direction, out);
}

void TimedBackend::CausalConvSilu(F32View x, const float* weights, const TokenPlaces& places,
                                  const DeltaStates& states) {
  const Timer timer(times_, OpClass::kDelta);
  inner_->CausalConvSilu(x, weights, places, states);
}

void TimedBackend::DeltaGates(F32View decay, F32View beta, const float* rate, const float* bias) {
  const Timer timer(times_, OpClass::kDelta);
  inner_->DeltaGates(decay, beta, rate, bias);
}

void TimedBackend::GatedDeltaRule(F32View qkv, F32View decay, F32View beta,
                                  const TokenPlaces& places, const DeltaStates& states,
                                  F32View out) {
  const Timer timer(times_, OpClass::kDelta);
  inner_->GatedDeltaRule(qkv, decay, beta, places, states, out);
}

void TimedBackend::SigmoidMul(F32View gate, F32View x) {
  const Timer timer(times_, OpClass::kOther);
  inner_->SigmoidMul(gate, x);
}

void TimedBackend::SiluMul(F32View gate, F32View up, F32View out) {
  const Timer timer(times_, OpClass::kOther);
  inner_->SiluMul(gate, up, out);
}

void TimedBackend::Copy(F32View x, F32View out) {
  const Timer timer(times_, OpClass::kOther);
  inner_->Copy(x, out);
}

void TimedBackend::SelectRows(F32View x, std::span<const int32_t> rows, F32View out) {
  const Timer timer(times_, OpClass::kOther);
  inner_->SelectRows(x, rows, out);
}

void TimedBackend::TopCandidates(F32View logits, int32_t first_id, const uint8_t* allowed,
                                 std::span<const CandidateSpec> specs, Candidate* out,
                                 LogSum* sums) {
  const Timer timer(times_, OpClass::kCandidates);
  inner_->TopCandidates(logits, first_id, allowed, specs, out, sums);
}

}  // namespace trine
