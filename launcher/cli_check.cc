#include "launcher/cli_check.h"

#include <algorithm>
#include <random>
#include <utility>

#include "launcher/cli_values.h"
#include "src/engine/fit_pages.h"

namespace trine {
namespace {

void TakePrompts(const RawOptions& raw, Settings& s) {
  s.parse_special = !raw.no_parse_special;
  for (const std::string& prompt : raw.prompt) {
    s.prompts.push_back(raw.no_escape ? prompt : Unescape(prompt));
  }
}

Status CheckRankOptions(const Settings& s) {
  TRINE_RETURN_IF_ERROR(OneOf("--comm", s.comm, {"auto", "shm", "mpi"}));
  TRINE_RETURN_IF_ERROR(InRange("--np", s.np, 0, 1024));
  return InRange("--step-timeout", s.step_timeout, 0, 1e6);
}

Status CheckModelOptions(const RawOptions& raw, Settings& s) {
  TRINE_RETURN_IF_ERROR(CheckRankOptions(s));
  TRINE_RETURN_IF_ERROR(OneOf("--device", raw.device, {"auto", "cpu"}));
  TRINE_RETURN_IF_ERROR(OneOf("--reduce", raw.reduce, {"exact"}));
  TRINE_RETURN_IF_ERROR(OneOf("--compute", s.compute, {"int", "f32"}));
  TRINE_RETURN_IF_ERROR(OneOf("--restart", raw.restart, {"no", "on-failure"}));
  if (raw.restart != "no") {
    return UsageError("--restart " + raw.restart + " is for serve; " + s.verb +
                      " ends with its failure, so leave it out");
  }
  for (const auto& [option, type] : {std::pair("-ctk", raw.cache_k), {"-ctv", raw.cache_v}}) {
    if (!type.empty()) TRINE_RETURN_IF_ERROR(OneOf(option, type, {"f16", "q8_0", "f32"}));
  }
  s.cache_type = raw.cache_k.empty() ? raw.cache_v : raw.cache_k;
  if (!raw.cache_v.empty() && raw.cache_v != s.cache_type) {
    return UsageError("-ctk is " + raw.cache_k + " and -ctv " + raw.cache_v +
                      "; they must be equal");
  }
  if (s.cache_type.empty()) s.cache_type = s.compute == "f32" ? "f32" : "f16";
  TRINE_RETURN_IF_ERROR(InRange("--ctx-size", static_cast<double>(s.context), 0, 1 << 24));
  TRINE_RETURN_IF_ERROR(InRange("--batch-size", static_cast<double>(s.batch), 1, 1 << 20));
  TRINE_RETURN_IF_ERROR(InRange("--threads", s.threads, 0, 1024));
  TRINE_RETURN_IF_ERROR(InRange("--np", s.plan_ranks, 1, 1024));
  TRINE_ASSIGN(s.split, ParseList("--split", raw.split));
  for (const double share : s.split) TRINE_RETURN_IF_ERROR(InRange("--split", share, 1e-6, 1e6));
  if (!raw.kv_memory.empty()) {
    TRINE_ASSIGN(s.kv_memory, ParseBytes("--kv-memory", raw.kv_memory));
  }
  return InRange("--memory-fraction", s.memory_fraction, 1e-6, 1);
}

// Of run and plan.
Status CheckSequenceOptions(const Settings& s) {
  TRINE_RETURN_IF_ERROR(InRange("--parallel", static_cast<double>(s.parallel), 0, kMostSequences));
  TRINE_RETURN_IF_ERROR(
      InRange("--ctx-checkpoints", static_cast<double>(s.ctx_checkpoints), 0, 1024));
  return InRange("--draft-max", static_cast<double>(s.draft_max), 0, 64);
}

Status CheckPlanOptions(const RawOptions& raw, Settings& s) {
  TRINE_RETURN_IF_ERROR(CheckSequenceOptions(s));
  if (!raw.memory.empty()) {
    TRINE_ASSIGN(s.plan_memory, ParseBytes("--memory", raw.memory));
  }
  return {};
}

Status CheckRunOptions(const RawOptions& raw, Settings& s) {
  TRINE_RETURN_IF_ERROR(CheckSequenceOptions(s));
  TRINE_RETURN_IF_ERROR(InRange("--n-predict", s.predict, -1, 1 << 24));
  TRINE_RETURN_IF_ERROR(InRange("--temp", s.temperature, 0, 100));
  TRINE_RETURN_IF_ERROR(InRange("--top-p", s.top_p, 0, 1));
  TRINE_RETURN_IF_ERROR(InRange("--min-p", s.min_p, 0, 1));
  TRINE_RETURN_IF_ERROR(InRange("--typical", s.typical_p, 0, 1));
  TRINE_RETURN_IF_ERROR(InRange("--repeat-penalty", s.repeat_penalty, 1e-3, 100));
  TRINE_RETURN_IF_ERROR(InRange("--repeat-last-n", s.repeat_last_n, -1, 1 << 24));
  TRINE_RETURN_IF_ERROR(InRange("--presence-penalty", s.presence_penalty, -100, 100));
  TRINE_RETURN_IF_ERROR(InRange("--frequency-penalty", s.frequency_penalty, -100, 100));
  TRINE_RETURN_IF_ERROR(InRange("--min-tokens", s.min_tokens, 0, 1 << 24));
  for (const std::string& text : raw.logit_bias) {
    TRINE_ASSIGN(const auto bias, ParseLogitBias("--logit-bias", text));
    s.logit_bias.push_back(bias);
  }
  for (const std::string& text : raw.stop) {
    if (text.empty()) return UsageError("--reverse-prompt is empty; give the text to stop at");
    s.stop.push_back(raw.no_escape ? text : Unescape(text));
  }
  s.seed = raw.seed < 0 ? std::random_device{}() : static_cast<uint64_t>(raw.seed);
  if (s.prompts.empty() && s.prompt_file.empty())
    return UsageError("run needs a prompt: -p TEXT or -f FILE");
  return {};
}

Status CheckPerplexityOptions(const RawOptions& raw, Settings& s) {
  s.prompts = raw.prompt;
  if (s.prompts.size() + (s.prompt_file.empty() ? 0 : 1) != 1) {
    return UsageError("perplexity needs one text: -f FILE or -p TEXT");
  }
  if (s.context != 0) {
    TRINE_RETURN_IF_ERROR(InRange("--ctx-size", static_cast<double>(s.context), 3, 1 << 24));
  }
  if (s.chunks == -1) return {};
  return InRange("--chunks", static_cast<double>(s.chunks), 1, 1 << 24);
}

Status CheckBenchOptions(const RawOptions& raw, bool json, Settings& s) {
  TRINE_ASSIGN(s.bench_prompt, ParseLengths("-p", raw.bench_prompt, /*least=*/0));
  TRINE_ASSIGN(s.bench_generate, ParseLengths("-n", raw.bench_generate, /*least=*/0));
  TRINE_ASSIGN(s.bench_depth, ParseLengths("-d", raw.bench_depth, /*least=*/0));
  TRINE_ASSIGN(s.bench_batch, ParseLengths("-b", raw.bench_batch, /*least=*/1));
  TRINE_ASSIGN(s.bench_parallel, ParseLengths("-npl", raw.bench_parallel, /*least=*/1));
  const int64_t parallel = std::ranges::max(s.bench_parallel);
  TRINE_RETURN_IF_ERROR(InRange("-npl", static_cast<double>(parallel), 1, kMostSequences));
  if (parallel > std::ranges::min(s.bench_batch)) {
    return UsageError("-npl is " + std::to_string(parallel) + " and -b " +
                      std::to_string(std::ranges::min(s.bench_batch)) +
                      "; a step must have room for a token of every sequence");
  }
  if (parallel > 1 && std::ranges::max(s.bench_depth) > 0) {
    return UsageError("-npl is " + std::to_string(parallel) + " and -d " +
                      std::to_string(std::ranges::max(s.bench_depth)) +
                      "; several sequences begin at -d 0 only");
  }
  for (const std::string& text : raw.bench_pairs) {
    TRINE_ASSIGN(const std::vector<int64_t> pair, ParseLengths("-pg", text, /*least=*/1));
    if (pair.size() != 2) return UsageError("-pg is '" + text + "'; two numbers PP,TG are needed");
    s.bench_pairs.push_back({pair[0], pair[1]});
  }
  const auto is_zero = [](int64_t length) { return length == 0; };
  if (s.bench_pairs.empty() && std::ranges::all_of(s.bench_prompt, is_zero) &&
      std::ranges::all_of(s.bench_generate, is_zero)) {
    return UsageError("nothing to time: give -p, -n or -pg a length above 0");
  }
  TRINE_RETURN_IF_ERROR(InRange("--repetitions", s.repetitions, 1, 1000));
  if (json) s.output = "json";
  return OneOf("--output", s.output, {"md", "csv", "json", "jsonl", "sql"});
}

Status CheckSynthOptions(const RawOptions& raw, Settings& s) {
  if (s.output_file.empty()) return UsageError("synth needs a file to write: -o FILE.gguf");
  TRINE_RETURN_IF_ERROR(InRange("--seed", static_cast<double>(raw.seed), 0, 0x1p53));
  s.seed = static_cast<uint64_t>(raw.seed);
  return {};
}

Status CheckConvertOptions(const RawOptions& raw, Settings& s) {
  if (s.model.empty() || s.output_file.empty()) {
    return UsageError("convert needs a model and what to make of it: trine convert IN OUT");
  }
  TRINE_RETURN_IF_ERROR(InRange("--threads", s.threads, 0, 1024));
  TRINE_ASSIGN(s.shard_bytes, ParseBytes("--shard-size", raw.shard_size));
  return {};
}

}  // namespace

Status CheckOptions(const RawOptions& raw, Settings& s) {
  if (s.verb == "fabric") return CheckRankOptions(s);
  if (s.verb == "synth") return CheckSynthOptions(raw, s);
  if (s.verb == "convert") return CheckConvertOptions(raw, s);
  if (s.verb == "plan" && s.model.empty() == s.preset.empty()) {
    return UsageError("plan needs either a model, -m MODEL.gguf, or a --preset");
  }
  if (s.verb == "plan" && s.preset.empty() && (!s.type.empty() || s.layers != -1)) {
    return UsageError("--type and --layers go with a --preset; a file has its own");
  }
  if (s.verb != "plan" && s.model.empty()) {
    return UsageError(s.verb + " needs a model: -m MODEL.gguf");
  }
  if (s.verb == "run" || s.verb == "bench" || s.verb == "perplexity" || s.verb == "plan") {
    TRINE_RETURN_IF_ERROR(CheckModelOptions(raw, s));
  }
  if (s.verb == "run" || s.verb == "tokenize") TakePrompts(raw, s);
  if (s.verb == "plan") return CheckPlanOptions(raw, s);
  if (s.verb == "run") return CheckRunOptions(raw, s);
  if (s.verb == "perplexity") return CheckPerplexityOptions(raw, s);
  if (s.verb == "bench") return CheckBenchOptions(raw, s.json, s);
  if (s.verb == "tokenize" && s.prompts.empty() && s.prompt_file.empty() && s.decode.empty()) {
    return UsageError("tokenize needs text: -p TEXT, -f FILE or --decode IDS");
  }
  return {};
}

}  // namespace trine
