#include "launcher/cli.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <random>
#include <regex>
#include <sstream>

#include "src/synth/preset.h"

namespace po = boost::program_options;

namespace trine {
namespace {

constexpr char kUsage[] =
    "trine VERB [options]        one rank\n"
    "trine VERB --np N [options] run, bench, perplexity: N ranks on this host (mpirun -np N trine "
    "VERB)\n\n"
    "  run         generate text from a prompt\n"
    "  bench       tokens per second of prefill (pp) and decode (tg)\n"
    "  perplexity  how well a model predicts a text; KL divergence from another's logits\n"
    "  inspect     what a model file holds\n"
    "  plan        what each of N ranks would hold, from headers alone\n"
    "  tokenize    text to token ids, and back\n"
    "  convert     a model into another container (.gguf, safetensors) or type\n"
    "  synth       write a model file of a preset's shape with random weights\n\n"
    "trine VERB --help lists a verb's options.\n";

Status Usage(std::string message) {
  return {Code::kUsage, std::move(message)};
}

// Several letters after one dash, as llama.cpp has them, to the long names.
const std::map<std::string, std::string> kAliases = {
    {"-ctk", "--cache-type-k"},   {"-ctv", "--cache-type-v"},        {"-pg", "--prompt-gen"},
    {"--predict", "--n-predict"}, {"--max-model-len", "--ctx-size"}, {"--temperature", "--temp"}};

// What the parser fills before it is checked.
struct Raw {
  std::string config, device = "auto", reduce = "exact", cache_k, cache_v, split;
  std::vector<std::string> prompt;
  std::string bench_prompt = "512", bench_generate = "128", bench_depth = "0", bench_batch = "512";
  std::vector<std::string> bench_pairs;
  std::string shard_size;
  int64_t seed = -1;
  bool no_escape = false, no_parse_special = false;
};

po::options_description ModelOptions(Settings& s, Raw& raw) {
  po::options_description options("Model and ranks");
  auto add = options.add_options();
  add("model,m", po::value(&s.model),
      "a .gguf file (the first part of a split one), or a folder of safetensors");
  add("np", po::value(&s.np), "ranks to start on this host");
  add("config", po::value(&raw.config), "options from an ini file");
  add("ctx-size,c", po::value(&s.context)->default_value(s.context),
      "tokens of context; 0: what the model was made for");
  add("threads,t", po::value(&s.threads), "threads per rank; default: this host's cores / ranks");
  add("device", po::value(&raw.device)->default_value(raw.device), "auto or cpu");
  add("comm", po::value(&s.comm)->default_value(s.comm), "auto, shm (one host) or mpi");
  add("reduce", po::value(&raw.reduce)->default_value(raw.reduce),
      "exact: the same bits at every rank count");
  add("compute", po::value(&s.compute)->default_value(s.compute),
      "int: block formats multiply integer activations; f32: everything in f32, the ruler");
  add("cache-type-k", po::value(&raw.cache_k), "-ctk: KV cache type f16, q8_0 or f32");
  add("cache-type-v", po::value(&raw.cache_v), "-ctv: as -ctk, and equal to it");
  if (s.verb != "bench") {  // which has a list
    add("batch-size,b", po::value(&s.batch)->default_value(s.batch), "tokens per step");
  }
  add("split", po::value(&raw.split), "shares of the ranks, e.g. 1,2; default: equal");
  return options;
}

po::options_description PromptOptions(Settings& s, Raw& raw) {
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

po::options_description RunOptions(Settings& s, Raw& raw) {
  po::options_description options("Generation");
  auto add = options.add_options();
  add("n-predict,n", po::value(&s.predict)->default_value(s.predict),
      "tokens to generate; -1: to the end of the text or the context");
  add("temp", po::value(&s.temperature)->default_value(s.temperature), "0: greedy");
  add("top-k", po::value(&s.top_k)->default_value(s.top_k), "0: off");
  add("top-p", po::value(&s.top_p)->default_value(s.top_p), "1: off");
  add("min-p", po::value(&s.min_p)->default_value(s.min_p), "0: off");
  add("repeat-penalty", po::value(&s.repeat_penalty)->default_value(s.repeat_penalty), "1: off");
  add("repeat-last-n", po::value(&s.repeat_last_n)->default_value(s.repeat_last_n),
      "tokens that penalties look back on; -1: all");
  add("presence-penalty", po::value(&s.presence_penalty)->default_value(0.0), "0: off");
  add("frequency-penalty", po::value(&s.frequency_penalty)->default_value(0.0), "0: off");
  add("seed,s", po::value(&raw.seed)->default_value(raw.seed), "-1: another every time");
  add("ignore-eos", po::bool_switch(&s.ignore_eos), "go on after an end token");
  add("save-logits", po::value(&s.save_logits), "write the raw f32 logits of every sampled token");
  return options;
}

po::options_description BenchOptions(Settings& s, Raw& raw) {
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
  add("batch-size,b", po::value(&raw.bench_batch)->default_value(raw.bench_batch),
      "tokens per step, a list");
  add("repetitions,r", po::value(&s.repetitions)->default_value(s.repetitions), "of each test");
  add("output,o", po::value(&s.output)->default_value(s.output), "md, csv, json, jsonl or sql");
  add("json", po::bool_switch(&s.json), "the same as -o json");
  return options;
}

po::options_description PerplexityOptions(Settings& s, Raw& raw) {
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

po::options_description PlanOptions(Settings& s, Raw& raw) {
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
  add("cache-type-k", po::value(&raw.cache_k), "-ctk: KV cache type f16, q8_0 or f32");
  add("cache-type-v", po::value(&raw.cache_v), "-ctv: as -ctk, and equal to it");
  add("batch-size,b", po::value(&s.batch)->default_value(s.batch), "tokens per step");
  add("split", po::value(&raw.split), "shares of the ranks, e.g. 1,2; default: equal");
  add("json", po::bool_switch(&s.json), "machine-readable");
  return options;
}

po::options_description SynthOptions(Settings& s, Raw& raw) {
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

po::options_description ConvertOptions(Settings& s, Raw& raw) {
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

po::options_description VerbOptions(Settings& s, Raw& raw) {
  po::options_description options;
  auto add = options.add_options();
  if (s.verb == "perplexity") {
    s.context = 512;
    options.add(ModelOptions(s, raw)).add(PerplexityOptions(s, raw));
  } else if (s.verb == "run") {
    options.add(ModelOptions(s, raw)).add(PromptOptions(s, raw)).add(RunOptions(s, raw));
  } else if (s.verb == "bench") {
    options.add(ModelOptions(s, raw)).add(BenchOptions(s, raw));
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

Result<std::vector<std::string>> ExpandAliases(int argc, const char* const* argv) {
  std::vector<std::string> arguments;
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "-np") {
      return Usage("-np means different things elsewhere; use --np N for ranks");
    }
    const auto alias = kAliases.find(argument);
    arguments.push_back(alias == kAliases.end() ? argument : alias->second);
  }
  return arguments;
}

Result<std::vector<double>> ParseList(const std::string& option, const std::string& text) {
  std::vector<double> values;
  if (text.ends_with(',')) return Usage(option + " " + text + ": a number is missing at the end");
  std::istringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) {
    std::istringstream one(item);
    double value = 0;
    if (!(one >> value) || !one.eof() || value < 0) {
      return Usage(option + " " + text + ": '" + item + "' is not a number >= 0");
    }
    values.push_back(value);
  }
  return values;
}

std::string Unescape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
    const std::string from = "nrt\\'\"", to = "\n\r\t\\'\"";
    const size_t found = next == '\0' ? std::string::npos : from.find(next);
    out += found == std::string::npos ? text[i] : to[found];
    i += found == std::string::npos ? 0 : 1;
  }
  return out;
}

void TakePrompts(const Raw& raw, Settings& s) {
  s.parse_special = !raw.no_parse_special;
  for (const std::string& prompt : raw.prompt) {
    s.prompts.push_back(raw.no_escape ? prompt : Unescape(prompt));
  }
}

Status OneOf(const std::string& option, const std::string& value,
             std::initializer_list<const char*> possible) {
  std::string list;
  for (const char* choice : possible) {
    if (value == choice) return {};
    list += (list.empty() ? "" : ", ") + std::string(choice);
  }
  return Usage(option + " is '" + value + "'; possible are " + list);
}

Status InRange(const std::string& option, double value, double least, double most) {
  if (value >= least && value <= most) return {};
  std::ostringstream text;
  text.precision(10);
  text << option << " is " << value << "; " << least << " to " << most << " is possible";
  return Usage(text.str());
}

constexpr int64_t kLongest = 1 << 24;

// Adds what one item of a list stands for: "8", or a range as llama-bench has them: "1-4", "1-9+4"
// (1, 5, 9), "1-8*2" (1, 2, 4, 8).
Status AddLengths(const std::string& option, const std::string& item, int64_t least,
                  std::vector<int64_t>& values) {
  static const std::regex form(R"((\d{1,15})(?:-(\d{1,15})(?:([+*])(\d{1,15}))?)?)");
  std::smatch parts;
  if (!std::regex_match(item, parts, form)) {
    return Usage(option + ": '" + item +
                 "' is neither a number >= 0 nor a range such as 1-4, 1-9+4 or 1-8*2");
  }
  const int64_t first = std::stoll(parts[1]);
  const int64_t last = parts[2].matched ? std::stoll(parts[2]) : first;
  const int64_t step = parts[4].matched ? std::stoll(parts[4]) : 1;
  for (const int64_t length : {first, last}) {
    TRINE_RETURN_IF_ERROR(InRange(option, static_cast<double>(length), static_cast<double>(least),
                                  static_cast<double>(kLongest)));
  }
  const bool multiply = parts[3] == "*";
  if (last < first || step > kLongest || step < (multiply ? 2 : 1) || (multiply && first == 0)) {
    return Usage(option + ": the range '" + item + "' does not get to its last number");
  }
  constexpr size_t kMost = 1000;
  for (int64_t value = first; value <= last; value = multiply ? value * step : value + step) {
    if (values.size() == kMost) {
      return Usage(option + ": with '" + item + "' there are more than " + std::to_string(kMost) +
                   " numbers");
    }
    values.push_back(value);
  }
  return {};
}

Result<std::vector<int64_t>> ParseLengths(const std::string& option, const std::string& text,
                                          int64_t least) {
  std::vector<int64_t> values;
  std::istringstream stream(text + ",");  // getline does not see an item behind the last comma
  for (std::string item; std::getline(stream, item, ',');) {
    TRINE_RETURN_IF_ERROR(AddLengths(option, item, least, values));
  }
  return values;
}

Status CheckModelOptions(const Raw& raw, Settings& s) {
  TRINE_RETURN_IF_ERROR(OneOf("--device", raw.device, {"auto", "cpu"}));
  TRINE_RETURN_IF_ERROR(OneOf("--comm", s.comm, {"auto", "shm", "mpi"}));
  TRINE_RETURN_IF_ERROR(OneOf("--reduce", raw.reduce, {"exact"}));
  TRINE_RETURN_IF_ERROR(OneOf("--compute", s.compute, {"int", "f32"}));
  s.cache_type = raw.cache_k.empty() ? raw.cache_v : raw.cache_k;
  if (!raw.cache_v.empty() && raw.cache_v != s.cache_type) {
    return Usage("-ctk is " + raw.cache_k + " and -ctv " + raw.cache_v + "; they must be equal");
  }
  if (s.cache_type.empty()) s.cache_type = s.compute == "f32" ? "f32" : "f16";
  TRINE_RETURN_IF_ERROR(OneOf("-ctk", s.cache_type, {"f16", "q8_0", "f32"}));
  TRINE_RETURN_IF_ERROR(InRange("--ctx-size", static_cast<double>(s.context), 0, 1 << 24));
  TRINE_RETURN_IF_ERROR(InRange("--batch-size", static_cast<double>(s.batch), 1, 1 << 20));
  TRINE_RETURN_IF_ERROR(InRange("--threads", s.threads, 0, 1024));
  TRINE_RETURN_IF_ERROR(InRange("--np", s.np, 0, 1024));
  TRINE_RETURN_IF_ERROR(InRange("--np", s.plan_ranks, 1, 1024));
  TRINE_ASSIGN(s.split, ParseList("--split", raw.split));
  for (const double share : s.split) TRINE_RETURN_IF_ERROR(InRange("--split", share, 1e-6, 1e6));
  return {};
}

Status CheckRunOptions(const Raw& raw, Settings& s) {
  TRINE_RETURN_IF_ERROR(InRange("--n-predict", s.predict, -1, 1 << 24));
  TRINE_RETURN_IF_ERROR(InRange("--temp", s.temperature, 0, 100));
  TRINE_RETURN_IF_ERROR(InRange("--top-p", s.top_p, 0, 1));
  TRINE_RETURN_IF_ERROR(InRange("--min-p", s.min_p, 0, 1));
  TRINE_RETURN_IF_ERROR(InRange("--repeat-penalty", s.repeat_penalty, 1e-3, 100));
  TRINE_RETURN_IF_ERROR(InRange("--repeat-last-n", s.repeat_last_n, -1, 1 << 24));
  TRINE_RETURN_IF_ERROR(InRange("--presence-penalty", s.presence_penalty, -100, 100));
  TRINE_RETURN_IF_ERROR(InRange("--frequency-penalty", s.frequency_penalty, -100, 100));
  s.seed = raw.seed < 0 ? std::random_device{}() : static_cast<uint64_t>(raw.seed);
  if (s.prompts.empty() && s.prompt_file.empty())
    return Usage("run needs a prompt: -p TEXT or -f FILE");
  return {};
}

Status CheckPerplexityOptions(const Raw& raw, Settings& s) {
  s.prompts = raw.prompt;
  if (s.prompts.size() + (s.prompt_file.empty() ? 0 : 1) != 1) {
    return Usage("perplexity needs one text: -f FILE or -p TEXT");
  }
  if (s.context != 0) {
    TRINE_RETURN_IF_ERROR(InRange("--ctx-size", static_cast<double>(s.context), 3, 1 << 24));
  }
  if (s.chunks == -1) return {};
  return InRange("--chunks", static_cast<double>(s.chunks), 1, 1 << 24);
}

Status CheckBenchOptions(const Raw& raw, bool json, Settings& s) {
  TRINE_ASSIGN(s.bench_prompt, ParseLengths("-p", raw.bench_prompt, /*least=*/0));
  TRINE_ASSIGN(s.bench_generate, ParseLengths("-n", raw.bench_generate, /*least=*/0));
  TRINE_ASSIGN(s.bench_depth, ParseLengths("-d", raw.bench_depth, /*least=*/0));
  TRINE_ASSIGN(s.bench_batch, ParseLengths("-b", raw.bench_batch, /*least=*/1));
  for (const std::string& text : raw.bench_pairs) {
    TRINE_ASSIGN(const std::vector<int64_t> pair, ParseLengths("-pg", text, /*least=*/1));
    if (pair.size() != 2) return Usage("-pg is '" + text + "'; two numbers PP,TG are needed");
    s.bench_pairs.push_back({pair[0], pair[1]});
  }
  const auto is_zero = [](int64_t length) { return length == 0; };
  if (s.bench_pairs.empty() && std::ranges::all_of(s.bench_prompt, is_zero) &&
      std::ranges::all_of(s.bench_generate, is_zero)) {
    return Usage("nothing to time: give -p, -n or -pg a length above 0");
  }
  TRINE_RETURN_IF_ERROR(InRange("--repetitions", s.repetitions, 1, 1000));
  if (json) s.output = "json";
  return OneOf("--output", s.output, {"md", "csv", "json", "jsonl", "sql"});
}

Status CheckSynthOptions(const Raw& raw, Settings& s) {
  if (s.output_file.empty()) return Usage("synth needs a file to write: -o FILE.gguf");
  TRINE_RETURN_IF_ERROR(InRange("--seed", static_cast<double>(raw.seed), 0, 0x1p53));
  s.seed = static_cast<uint64_t>(raw.seed);
  return {};
}

// A number of bytes with KB, MB or GB, powers of ten, behind it.
Result<int64_t> ParseBytes(const std::string& option, const std::string& text) {
  std::istringstream stream(text);
  double number = 0;
  std::string unit;
  stream >> number >> unit;
  const double factor = unit == "GB" ? 1e9 : unit == "MB" ? 1e6 : unit == "KB" ? 1e3 : 0;
  const double bytes = number * factor;
  if (!(bytes >= 1e3) || bytes > 1e15) {
    return Usage(option + " is '" + text + "'; a size from 1KB on is needed, such as 500MB or 5GB");
  }
  return static_cast<int64_t>(bytes);
}

Status CheckConvertOptions(const Raw& raw, Settings& s) {
  if (s.model.empty() || s.output_file.empty()) {
    return Usage("convert needs a model and what to make of it: trine convert IN OUT");
  }
  TRINE_RETURN_IF_ERROR(InRange("--threads", s.threads, 0, 1024));
  TRINE_ASSIGN(s.shard_bytes, ParseBytes("--shard-size", raw.shard_size));
  return {};
}

Status Check(const Raw& raw, Settings& s) {
  if (s.verb == "synth") return CheckSynthOptions(raw, s);
  if (s.verb == "convert") return CheckConvertOptions(raw, s);
  if (s.verb == "plan" && s.model.empty() == s.preset.empty()) {
    return Usage("plan needs either a model, -m MODEL.gguf, or a --preset");
  }
  if (s.verb == "plan" && s.preset.empty() && (!s.type.empty() || s.layers != -1)) {
    return Usage("--type and --layers go with a --preset; a file has its own");
  }
  if (s.verb != "plan" && s.model.empty()) {
    return Usage(s.verb + " needs a model: -m MODEL.gguf");
  }
  if (s.verb == "run" || s.verb == "bench" || s.verb == "perplexity" || s.verb == "plan") {
    TRINE_RETURN_IF_ERROR(CheckModelOptions(raw, s));
  }
  if (s.verb == "run" || s.verb == "tokenize") TakePrompts(raw, s);
  if (s.verb == "run") return CheckRunOptions(raw, s);
  if (s.verb == "perplexity") return CheckPerplexityOptions(raw, s);
  if (s.verb == "bench") return CheckBenchOptions(raw, s.json, s);
  if (s.verb == "tokenize" && s.prompts.empty() && s.prompt_file.empty() && s.decode.empty()) {
    return Usage("tokenize needs text: -p TEXT, -f FILE or --decode IDS");
  }
  return {};
}

// TRINE_CTX_SIZE is --ctx-size; variables that are no option of this verb are left alone.
std::string EnvironmentName(const po::options_description& options, const std::string& variable) {
  if (!variable.starts_with("TRINE_")) return "";
  std::string name;
  for (const char c : variable.substr(6)) {
    name += c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return options.find_nothrow(name, /*approx=*/false) == nullptr ? "" : name;
}

Status Parse(const std::vector<std::string>& arguments, Settings& s) {
  Raw raw;
  const po::options_description options = VerbOptions(s, raw);
  po::positional_options_description positional;
  if (s.verb != "synth") positional.add("model", 1);
  if (s.verb == "convert") positional.add("output", 1);
  po::variables_map map;
  const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
  po::store(
      po::command_line_parser(arguments).options(options).positional(positional).style(style).run(),
      map);
  if (map.count("help") != 0) {
    std::ostringstream text;
    text << "trine " << s.verb << " [options]\n" << options;
    s.help = text.str();
    return {};
  }
  po::store(
      po::parse_environment(
          options, [&](const std::string& variable) { return EnvironmentName(options, variable); }),
      map);
  if (map.count("config") != 0) {
    const auto path = map["config"].as<std::string>();
    std::ifstream file(path);
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) {
      return BadInput("--config " + path + " is a directory; give a file");
    }
    if (!file) return BadInput("--config " + path + ": cannot open it");
    po::store(po::parse_config_file(file, options), map);
  }
  po::notify(map);
  return Check(raw, s);
}

}  // namespace

Result<Settings> ParseCommandLine(int argc, const char* const* argv) {
  Settings settings;
  const std::string verb = argc > 1 ? argv[1] : "";
  if (verb == "--version" || verb == "--help" || verb == "-h" || verb == "help") {
    settings.help = verb == "--version" ? "trine " TRINE_VERSION "\n" : kUsage;
    return settings;
  }
  constexpr const char* kVerbs[] = {"run",  "bench",    "perplexity", "inspect",
                                    "plan", "tokenize", "convert",    "synth"};
  if (std::find(std::begin(kVerbs), std::end(kVerbs), verb) == std::end(kVerbs)) {
    return Usage((verb.empty() ? "no verb" : "unknown verb '" + verb + "'") +
                 "; run, bench, perplexity, inspect, plan, tokenize, convert and synth exist "
                 "(trine --help)");
  }
  settings.verb = verb;
  TRINE_ASSIGN(const std::vector<std::string> arguments, ExpandAliases(argc, argv));
  try {
    TRINE_RETURN_IF_ERROR(Parse(arguments, settings));
  } catch (const po::error& error) {
    return Usage(std::string(error.what()) + " (trine " + verb + " --help)");
  }
  return settings;
}

}  // namespace trine
