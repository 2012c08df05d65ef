#include "launcher/settings_wire.h"

#include <nlohmann/json.hpp>

namespace trine {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(
    Settings, verb, help, np, model, context, threads, comm, compute, cache_type, batch, split,
    step_timeout, memory_fraction, kv_memory, parallel, ctx_checkpoints, draft_max, prompts,
    prompt_file, parse_special, predict, temperature, top_k, top_p, min_p, typical_p,
    repeat_penalty, repeat_last_n, presence_penalty, frequency_penalty, logit_bias, min_tokens,
    stop, seed, ignore_eos, save_logits, chunks, kl_divergence, csv, bench_prompt, bench_generate,
    bench_pairs, bench_depth, bench_batch, bench_parallel, repetitions, plan_ranks, plan_memory,
    output, json, sha256, verify, decode, preset, type, layers, output_file, shard_bytes)

Bytes EncodeSettings(const Settings& settings) {
  const std::vector<uint8_t> packed = nlohmann::json::to_msgpack(settings);
  const auto* bytes = reinterpret_cast<const std::byte*>(packed.data());
  return Bytes(bytes, bytes + packed.size());
}

Settings DecodeSettings(const Bytes& message) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(message.data());
  return nlohmann::json::from_msgpack(bytes, bytes + message.size()).get<Settings>();
}

}  // namespace trine
