// Settings: what the command line, the environment and --config ask for, checked and typed. Filled
// by launcher/cli_options.cc and cli_check.cc; the commands read it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trine {

struct Settings {
  std::string verb;  // run, bench, perplexity, fabric, inspect, plan, tokenize, convert, synth
  std::string help;  // not empty: print this and do nothing else
  int np = 0;        // ranks to launch; 0: do not

  // Every model-running verb.
  std::string model;
  int64_t context = 4096;       // tokens; 0: what the model was made for
  int threads = 0;              // per rank; 0: a fair share of this host's cores
  std::string comm = "auto";    // auto, shm, mpi
  std::string compute = "int";  // int, f32
  std::string cache_type;       // f16, q8_0, f32; empty: f16, or f32 with compute f32
  int64_t batch = 512;          // tokens per step
  std::vector<double> split;
  double step_timeout = 30;  // seconds that a rank may stand still in a step; 0: for ever
  double memory_fraction = 0.9;  // of this host's memory, shared evenly by its ranks
  int64_t kv_memory = 0;         // bytes of a rank; 0: what is left of its memory

  // run, plan
  int64_t parallel = 0;         // sequences at once; 0: as many as prompts; plan: 1
  int64_t ctx_checkpoints = 0;  // snapshots of a recurrent model's state, per sequence
  int64_t draft_max = 0;        // guessed tokens of a sequence in a step

  // run, perplexity, tokenize
  std::vector<std::string> prompts;
  std::string prompt_file;  // one more prompt; "-": standard input
  bool parse_special = true;

  // run
  int32_t predict = -1;  // tokens; -1: to the end of the text or the context
  double temperature = 0.8;
  int32_t top_k = 40;
  double top_p = 0.95;
  double min_p = 0.05;
  double typical_p = 1.0;
  double repeat_penalty = 1.0;
  int32_t repeat_last_n = 64;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  std::vector<std::pair<int32_t, double>> logit_bias;  // token, bias; -inf: never drawn
  int32_t min_tokens = 0;                              // before the text may end
  std::vector<std::string> stop;                       // strings that end the text
  uint64_t seed = 0;
  bool ignore_eos = false;
  std::string save_logits;  // file; empty: no; perplexity, too

  // perplexity
  int64_t chunks = -1;        // windows; -1: all that the text has
  std::string kl_divergence;  // logits of a reference, as save_logits writes them; empty: none
  std::string csv;            // file; empty: no

  // bench
  std::vector<int64_t> bench_prompt = {512};
  std::vector<int64_t> bench_generate = {128};
  std::vector<std::array<int64_t, 2>> bench_pairs;  // prompt, generate
  std::vector<int64_t> bench_depth = {0};
  std::vector<int64_t> bench_parallel = {1};
  std::vector<int64_t> bench_batch = {512};  // in place of `batch`
  int repetitions = 5;

  // plan
  int plan_ranks = 1;
  int64_t plan_memory = 0;  // bytes of a rank's device; 0: memory_fraction's part of this host's

  // inspect, bench, plan, tokenize
  std::string output = "md";  // md, csv, json, jsonl, sql; inspect and tokenize: json or text
  bool json = false;
  bool sha256 = false;
  std::string verify;  // inspect: file of checksums; empty: none
  std::string decode;  // tokenize: ids to turn into text

  int64_t shard_bytes = 0;  // convert; at most, of a .safetensors file

  // synth, convert, and seed
  std::string preset = "ternary-bonsai-2-27b";
  std::string type;         // of the matrices; empty: the preset's
  int layers = -1;          // -1: all of the preset's
  std::string output_file;  // written, or replaced
};

}  // namespace trine
