#include "launcher/cli_options.h"

#include "src/synth/preset.h"

namespace po = boost::program_options;

namespace trine {
namespace {

// Of verbs that run on several ranks.
void AddRankOptions(po::options_description& options, Settings& s, RawOptions& raw) {
  auto add = options.add_options();
  add("np", po::value(&s.np), "ranks to start on this host");
  add("config", po::value(&raw.config), "options from an ini file");
  add("comm", po::value(&s.comm)->default_value(s.comm), "auto, shm (one host) or mpi");
  add("step-timeout", po::value(&s.step_timeout)->default_value(s.step_timeout),
      "seconds that a rank may stand still in a step, or be silent, before the job ends; 0: for "
      "ever");
}

// What decides how much memory a job takes, beside the model and the context.
void AddMemoryOptions(po::options_description& options, Settings& s, RawOptions& raw) {
  auto add = options.add_options();
  add("cache-type-k", po::value(&raw.cache_k), "-ctk: KV cache type f16, q8_0 or f32");
  add("cache-type-v", po::value(&raw.cache_v), "-ctv: as -ctk, and equal to it");
  add("kv-memory", po::value(&raw.kv_memory),
      "of each rank, for the KV cache, with KB, MB or GB; default: what is left");
  add("memory-fraction", po::value(&s.memory_fraction)->default_value(s.memory_fraction, "0.9"),
      "of the memory of this host, which its ranks share evenly: what a job may take");
}

// Of verbs that run several sequences side by side.
void AddSequenceOptions(po::options_description& options, Settings& s, const char* parallel) {
  auto add = options.add_options();
  add("parallel", po::value(&s.parallel), parallel);
  add("ctx-checkpoints", po::value(&s.ctx_checkpoints)->default_value(s.ctx_checkpoints),
      "snapshots of a recurrent model's state, per sequence, so that what prompts begin with alike "
      "is computed once");
  add("draft-max", po::value(&s.draft_max)->default_value(s.draft_max),
      "tokens of a sequence to guess in a step, from what it has said before; 0: off");
}

po::options_description ModelOptions(Settings& s, RawOptions& raw) {
  po::options_description options("Model and ranks");
  auto add = options.add_options();
  add("model,m", po::value(&s.model),
      "a .gguf file (the first part of a split one), or a folder of safetensors");
  AddRankOptions(options, s, raw);
  add("ctx-size,c", po::value(&s.context)->default_value(s.context),
      "tokens of context; 0: what the model was made for");
  add("threads,t", po::value(&s.threads), "threads per rank; default: this host's cores / ranks");
  add("device", po::value(&raw.device)->default_value(raw.device), "auto or cpu");
  add("reduce", po::value(&raw.reduce)->default_value(raw.reduce),
      "exact: the same bits at every rank count");
  add("compute", po::value(&s.compute)->default_value(s.compute),
      "int: block formats multiply integer activations; f32: everything in f32, the ruler");
  if (s.verb != "bench") {  // which has a list
    add("batch-size,b", po::value(&s.batch)->default_value(s.batch),
        "tokens per step; no fewer than all sequences' next ones and guesses");
  }
  add("split", po::value(&raw.split), "shares of the ranks, e.g. 1,2; default: equal");
  add("restart", po::value(&raw.restart)->default_value(raw.restart),
      "no; on-failure is for serve");
  AddMemoryOptions(options, s, raw);
  return options;
}

po::options_description FabricOptions(Settings& s, RawOptions& raw) {
  po::options_description options("Fabric; auto checks all paths");
  AddRankOptions(options, s, raw);
  options.add_options()("json", po::bool_switch(&s.json), "machine-readable");
  return options;
}

po::options_description PromptOptions(Settings& s, RawOptions& raw) {
  po::options_description options("Prompt");
  auto add = options.add_options();
  add("prompt,p", po::value(&raw.prompt)->composing(), "text; given again: another sequence");
  add("file,f", po::value(&s.prompt_file), "text from a file; - is standard input");
  add("escape,e", po::bool_switch(), "turn \\n and the like into characters (default)");
  add("no-escape", po::bool_switch(&raw.no_escape), "take the prompt as it is");
  add("no-parse-special", po::bool_switch(&raw.no_parse_special),
      "control tokens in the text are plain text");
  return options;
}

po::options_description RunOptions(Settings& s, RawOptions& raw) {
  po::options_description options("Generation");
  auto add = options.add_options();
  add("n-predict,n", po::value(&s.predict)->default_value(s.predict),
      "tokens to generate; -1: to the end of the text or the context");
  add("temp", po::value(&s.temperature)->default_value(s.temperature), "0: greedy");
  add("top-k", po::value(&s.top_k)->default_value(s.top_k), "0: off");
  add("top-p", po::value(&s.top_p)->default_value(s.top_p), "1: off");
  add("min-p", po::value(&s.min_p)->default_value(s.min_p), "0: off");
  add("typical", po::value(&s.typical_p)->default_value(s.typical_p), "1: off");
  add("repeat-penalty", po::value(&s.repeat_penalty)->default_value(s.repeat_penalty), "1: off");
  add("repeat-last-n", po::value(&s.repeat_last_n)->default_value(s.repeat_last_n),
      "tokens that penalties look back on; -1: all");
  add("presence-penalty", po::value(&s.presence_penalty)->default_value(0.0), "0: off");
  add("frequency-penalty", po::value(&s.frequency_penalty)->default_value(0.0), "0: off");
  add("logit-bias", po::value(&raw.logit_bias)->composing(),
      "ID+BIAS or ID-BIAS, added to a token's logit; ID-inf: never; given again: another token");
  add("seed,s", po::value(&raw.seed)->default_value(raw.seed), "-1: another every time");
  add("ignore-eos", po::bool_switch(&s.ignore_eos), "go on after an end token");
  add("min-tokens", po::value(&s.min_tokens)->default_value(s.min_tokens),
      "no end token before that many");
  add("reverse-prompt,r", po::value(&raw.stop)->composing(),
      "text that ends the generation and is not printed; given again: another one");
  add("save-logits", po::value(&s.save_logits),
      "write the raw f32 logits of every sampled token, in the order of sampling");
  AddSequenceOptions(options, s, "prompts at once, the others wait; default: all");
  return options;
}

po::options_description BenchOptions(Settings& s, RawOptions& raw) {
  po::options_description options("Benchmark; lists: 16,32 or ranges 1-4, 1-9+4, 1-8*2");
  auto add = options.add_options();
  add("n-prompt,p", po::value(&raw.bench_prompt)->default_value(raw.bench_prompt),
      "prefill lengths (pp), a list; 0: no such test");
  add("n-gen,n", po::value(&raw.bench_generate)->default_value(raw.bench_generate),
      "decode lengths (tg), a list; 0: no such test");
  add("prompt-gen", po::value(&raw.bench_pairs)->composing(),
      "-pg PP,TG: a prefill and a decode behind it, timed together; given again: another test");
  add("n-depth,d", po::value(&raw.bench_depth)->default_value(raw.bench_depth),
      "tokens in the context before a test begins, a list");
  add("n-parallel", po::value(&raw.bench_parallel)->default_value(raw.bench_parallel),
      "-npl: sequences side by side, a list; their tokens are counted together");
  add("batch-size,b", po::value(&raw.bench_batch)->default_value(raw.bench_batch),
      "tokens per step, a list");
  add("repetitions,r", po::value(&s.repetitions)->default_value(s.repetitions), "of each test");
  add("output,o", po::value(&s.output)->default_value(s.output), "md, csv, json, jsonl or sql");
  add("json", po::bool_switch(&s.json), "the same as -o json");
  return options;
}

po::options_description PerplexityOptions(Settings& s, RawOptions& raw) {
  po::options_description options("Perplexity");
  auto add = options.add_options();
  add("prompt,p", po::value(&raw.prompt)->composing(), "the text, as it is");
  add("file,f", po::value(&s.prompt_file), "the text, from a file; - is standard input");
  add("chunks", po::value(&s.chunks)->default_value(s.chunks),
      "windows of --ctx-size tokens, from the first; -1: all");
  add("save-logits", po::value(&s.save_logits), "write the raw f32 logits of every scored token");
  add("kl-divergence", po::value(&s.kl_divergence),
      "compare with a reference: what --save-logits wrote for the same text and windows");
  add("csv", po::value(&s.csv), "write a line for every scored token");
  add("json", po::bool_switch(&s.json), "machine-readable");
  return options;
}

po::options_description PlanOptions(Settings& s, RawOptions& raw) {
  const std::string presets = "in place of a file: " + PresetNames();
  po::options_description options("Plan");
  auto add = options.add_options();
  add("model,m", po::value(&s.model), "model file");
  add("preset", po::value(&s.preset)->default_value(""), presets.c_str());
  add("type", po::value(&s.type), "of a preset's matrices, as of synth");
  add("layers", po::value(&s.layers)->default_value(s.layers), "of a preset; -1: all");
  add("np", po::value(&s.plan_ranks)->default_value(s.plan_ranks), "ranks to plan for");
  add("ctx-size,c", po::value(&s.context)->default_value(s.context),
      "tokens of context; 0: what the model was made for");
  add("compute", po::value(&s.compute)->default_value(s.compute), "int or f32, as of run");
  add("batch-size,b", po::value(&s.batch)->default_value(s.batch),
      "tokens per step; no fewer than all sequences' next ones and guesses");
  add("split", po::value(&raw.split), "shares of the ranks, e.g. 1,2; default: equal");
  add("memory", po::value(&raw.memory),
      "of each rank's device, with KB, MB or GB; default: its share of this host's");
  AddMemoryOptions(options, s, raw);
  AddSequenceOptions(options, s, "sequences at once; default: 1");
  add("json", po::bool_switch(&s.json), "machine-readable");
  return options;
}

po::options_description SynthOptions(Settings& s, RawOptions& raw) {
  const std::string presets = PresetNames();
  const std::string types = "of the matrices; default: the preset's; " + SynthTypeNames();
  po::options_description options("Model file");
  auto add = options.add_options();
  add("output,o", po::value(&s.output_file), "the .gguf file to write, or to replace");
  add("preset", po::value(&s.preset)->default_value(s.preset), presets.c_str());
  add("type", po::value(&s.type), types.c_str());
  add("layers", po::value(&s.layers)->default_value(s.layers), "the first N alone; -1: all");
  add("seed,s", po::value(&raw.seed)->default_value(0), "of the weights");
  return options;
}

po::options_description ConvertOptions(Settings& s, RawOptions& raw) {
  po::options_description options("trine convert IN OUT");
  auto add = options.add_options();
  add("model,m", po::value(&s.model), "IN: a .gguf file, or a folder of safetensors");
  add("output,o", po::value(&s.output_file), "OUT: NAME.gguf, or a folder to make");
  add("type", po::value(&s.type),
      "of the matrices: f16, bf16, f32; in GGUF also q8_0 and, for values that are ternary "
      "already, "
      "tq1_0, tq2_0, q2_0, pq2_0, ptq1_0. Default: as they are; quantised ones become f16 in "
      "safetensors");
  add("shard-size", po::value(&raw.shard_size)->default_value("5GB"),
      "at most, of a .safetensors file; with KB, MB or GB");
  add("threads,t", po::value(&s.threads), "default: this host's cores");
  return options;
}

}  // namespace

po::options_description VerbOptions(Settings& s, RawOptions& raw) {
  po::options_description options;
  auto add = options.add_options();
  if (s.verb == "perplexity") {
    s.context = 512;
    options.add(ModelOptions(s, raw)).add(PerplexityOptions(s, raw));
  } else if (s.verb == "run") {
    options.add(ModelOptions(s, raw)).add(PromptOptions(s, raw)).add(RunOptions(s, raw));
  } else if (s.verb == "bench") {
    options.add(ModelOptions(s, raw)).add(BenchOptions(s, raw));
  } else if (s.verb == "fabric") {
    options.add(FabricOptions(s, raw));
  } else if (s.verb == "plan") {
    options.add(PlanOptions(s, raw));
  } else if (s.verb == "synth") {
    options.add(SynthOptions(s, raw));
  } else if (s.verb == "convert") {
    options.add(ConvertOptions(s, raw));
  } else {
    add("model,m", po::value(&s.model), "model file");
    add("json", po::bool_switch(&s.json), "machine-readable");
  }
  if (s.verb == "inspect") {
    add("sha256", po::bool_switch(&s.sha256), "checksum of the files too");
    add("verify", po::value(&s.verify), "compare it with that in a file of sha256sum's format");
  }
  if (s.verb == "tokenize") {
    add("decode", po::value(&s.decode), "token ids to turn into text, e.g. \"504 2187\"");
    options.add(PromptOptions(s, raw));
  }
  add("help,h", "this list");
  return options;
}

}  // namespace trine
