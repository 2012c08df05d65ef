#include "src/models/rope.h"

#include <algorithm>
#include <cmath>

#include "src/core/quote.h"
#include "src/weights/llama3_rope.h"

namespace trine {
namespace {

struct Scaling {
  std::string type;  // none, linear, yarn, llama3
  double factor = 1;
  double original_context = 0;
  double attention_factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  double low_freq = 1;
  double high_freq = 4;
};

Result<Scaling> ReadScaling(const Metadata& meta, const std::string& arch) {
  const std::string prefix = arch + ".rope.scaling.";
  Scaling scaling;
  TRINE_ASSIGN(scaling.type, meta.StringOr(prefix + "type", "none"));
  TRINE_ASSIGN(const double old_factor, meta.FloatOr(arch + ".rope.scale_linear", 1));
  TRINE_ASSIGN(scaling.factor, meta.FloatOr(prefix + "factor", old_factor));
  TRINE_ASSIGN(scaling.original_context, meta.FloatOr(prefix + "original_context_length", 0));
  TRINE_ASSIGN(scaling.attention_factor, meta.FloatOr(prefix + "attn_factor", 1));
  TRINE_ASSIGN(scaling.beta_fast, meta.FloatOr(prefix + "yarn_beta_fast", 32));
  TRINE_ASSIGN(scaling.beta_slow, meta.FloatOr(prefix + "yarn_beta_slow", 1));
  if (scaling.type == "none" && meta.Find(arch + ".rope.scale_linear") != nullptr) {
    scaling.type = "linear";
  }
  constexpr const char* kTypes[] = {"none", "linear", "yarn", "llama3"};
  if (std::find(std::begin(kTypes), std::end(kTypes), scaling.type) == std::end(kTypes)) {
    return BadInput("'" + prefix + "type' is " + Quote(scaling.type) +
                    "; none, linear and yarn are supported");
  }
  if (!(scaling.factor > 0)) {
    return BadInput("'" + prefix + "factor' is " + std::to_string(scaling.factor) +
                    "; a positive number expected");
  }
  const bool needs_original = scaling.type == "yarn" || scaling.type == "llama3";
  if (needs_original && !(scaling.original_context > 0)) {
    return BadInput("'" + prefix + "original_context_length' is missing; " + scaling.type +
                    " needs it");
  }
  TRINE_ASSIGN(scaling.low_freq, meta.FloatOr(prefix + "low_freq_factor", 1));
  TRINE_ASSIGN(scaling.high_freq, meta.FloatOr(prefix + "high_freq_factor", 4));
  if (!(scaling.low_freq < scaling.high_freq)) {
    return BadInput("'" + prefix + "low_freq_factor' " + std::to_string(scaling.low_freq) +
                    " is not below high_freq_factor " + std::to_string(scaling.high_freq));
  }
  return scaling;
}

// Which share of pair i keeps its frequency: 1 for fast pairs, 0 for slow ones, a ramp between.
double YarnKept(const Scaling& scaling, double base, int64_t dims, int64_t i) {
  const auto pair_turning = [&](double turns) {
    return static_cast<double>(dims) * std::log(scaling.original_context / (turns * 2 * M_PI)) /
           (2 * std::log(base));
  };
  const double low = std::max(0.0, std::floor(pair_turning(scaling.beta_fast)));
  const double high =
      std::min(static_cast<double>(dims - 1), std::ceil(pair_turning(scaling.beta_slow)));
  const double ramp = (static_cast<double>(i) - low) / std::max(0.001, high - low);
  return 1 - std::clamp(ramp, 0.0, 1.0);
}

// Whether pair i turns with the position of a text token: not where interleaved sections (t, h, w
// and a fourth) leave it to the fourth.
Result<bool> TurnsWithText(const Metadata& meta, const std::string& key, int64_t i) {
  TRINE_ASSIGN(const std::vector<int64_t>* sections, meta.Ints(key));
  if (sections == nullptr) return true;
  int64_t total = 0;
  for (const int64_t pairs : *sections) {
    if (pairs < 0 || pairs > kMaxHeadDim) {
      return BadInput("'" + key + "' holds " + std::to_string(pairs) + "; 0 to " +
                      std::to_string(kMaxHeadDim) + " expected");
    }
    total += pairs;
  }
  if (sections->size() < 3 || sections->size() > 4 || total == 0) {
    return BadInput("'" + key + "' has " + std::to_string(sections->size()) +
                    " entries that add up to " + std::to_string(total) +
                    "; 3 or 4, not all of them 0, expected");
  }
  const int64_t place = i % total;
  return place < 3 * (*sections)[static_cast<size_t>(place % 3)];
}

// The parameters and, in `frequencies`, the radians per position of every pair.
Result<RopeParams> ReadRope(const ModelConfig& config, RopePairs pairs, const Metadata& meta,
                            std::vector<float>& frequencies) {
  const std::string arch = config.architecture;
  TRINE_ASSIGN(const double base, meta.FloatOr(arch + ".rope.freq_base", 10000));
  TRINE_ASSIGN(const int64_t dims, meta.IntOr(arch + ".rope.dimension_count", config.head_dim));
  TRINE_ASSIGN(const Scaling scaling, ReadScaling(meta, arch));
  if (dims < 2 || dims > config.head_dim || dims % 2 != 0) {
    return BadInput("'" + arch + ".rope.dimension_count' is " + std::to_string(dims) +
                    "; an even number up to the head dimension " + std::to_string(config.head_dim) +
                    " expected");
  }
  if (!(base > 0)) {
    return BadInput("'" + arch + ".rope.freq_base' is " + std::to_string(base) +
                    "; a positive number expected");
  }
  for (int64_t i = 0; i < dims / 2; ++i) {
    const double plain = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dims));
    double frequency = plain;
    if (scaling.type == "linear") frequency = plain / scaling.factor;
    if (scaling.type == "yarn") {
      const double kept = YarnKept(scaling, base, dims, i);
      frequency = plain / scaling.factor * (1 - kept) + plain * kept;
    }
    TRINE_ASSIGN(const bool turns, TurnsWithText(meta, arch + ".rope.dimension_sections", i));
    frequencies.push_back(turns ? static_cast<float>(frequency) : 0.0f);
  }
  if (scaling.type == "llama3") {  // GGUF files carry these as rope_freqs.weight, see below
    const Llama3Rope rule{scaling.factor, scaling.low_freq, scaling.high_freq,
                          scaling.original_context};
    const std::vector<float> divisors = rule.Divisors(base, dims);
    for (size_t i = 0; i < divisors.size(); ++i) frequencies[i] /= divisors[i];
  }
  RopeParams params{pairs, config.head_dim, dims, nullptr, 1};
  if (scaling.type == "yarn") {
    params.magnitude =
        static_cast<float>(scaling.attention_factor * (1 + 0.1 * std::log(scaling.factor)));
  }
  return params;
}

}  // namespace

Rope LoadRope(const ModelConfig& config, RopePairs pairs, WeightLoader& loader) {
  constexpr char kDivisors[] = "rope_freqs.weight";
  std::vector<float> frequencies;
  Result<RopeParams> params = ReadRope(config, pairs, loader.store().metadata(), frequencies);
  if (!params.ok()) {
    loader.Fail(params.status());
    return {};
  }
  for (const float frequency : frequencies) {
    if (std::isfinite(frequency)) continue;
    loader.Fail(
        BadInput("the rope constants of the metadata (base, scaling) give a frequency that "
                 "is not finite; the file is damaged, get it again"));
    return {};
  }
  const auto n = static_cast<int64_t>(frequencies.size());
  if (loader.Has(kDivisors)) {
    const std::vector<float> divisors = loader.HostTable(kDivisors, n, 1, Shard::Rows({0, n}));
    for (size_t i = 0; i < divisors.size(); ++i) {
      frequencies[i] /= divisors[i];
      if (std::isfinite(frequencies[i])) continue;
      loader.Fail(BadInput(std::string(kDivisors) + " holds a zero; the file is damaged, get it "
                                                    "again"));
      return {};
    }
  }
  Rope rope{*params, loader.backend().Allocate(n * 4)};
  loader.backend().Upload(frequencies.data(), n * 4, rope.frequencies.as());
  rope.params.frequencies = rope.frequencies.as<float>();
  return rope;
}

}  // namespace trine
