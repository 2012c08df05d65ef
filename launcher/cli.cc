#include "launcher/cli.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "launcher/cli_check.h"
#include "launcher/cli_options.h"
#include "launcher/cli_values.h"

namespace po = boost::program_options;

namespace trine {
namespace {

constexpr char kUsage[] =
    "trine VERB [options]        one rank\n"
    "trine VERB --np N [options] run, bench, perplexity, fabric: N ranks on this host (mpirun -np "
    "N trine VERB)\n\n"
    "  run         generate text from a prompt\n"
    "  bench       tokens per second of prefill (pp) and decode (tg)\n"
    "  perplexity  how well a model predicts a text; KL divergence from another's logits\n"
    "  fabric      whether data between ranks arrives right, and how fast\n"
    "  inspect     what a model file holds\n"
    "  plan        what each of N ranks would hold, from headers alone\n"
    "  tokenize    text to token ids, and back\n"
    "  convert     a model into another container (.gguf, safetensors) or type\n"
    "  synth       write a model file of a preset's shape with random weights\n\n"
    "trine VERB --help lists a verb's options.\n";

// Several letters after one dash, as llama.cpp has them, and other names to the long ones.
const std::map<std::string, std::string> kAliases = {
    {"-ctk", "--cache-type-k"},       {"-ctv", "--cache-type-v"},
    {"-pg", "--prompt-gen"},          {"-npl", "--n-parallel"},
    {"--predict", "--n-predict"},     {"--max-model-len", "--ctx-size"},
    {"--max-num-seqs", "--parallel"}, {"--gpu-memory-utilization", "--memory-fraction"},
    {"--temperature", "--temp"},      {"--stop", "--reverse-prompt"},
    {"--draft", "--draft-max"},       {"--draft-n", "--draft-max"}};

Result<std::vector<std::string>> ExpandAliases(int argc, const char* const* argv) {
  std::vector<std::string> arguments;
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "-np") {
      return UsageError(
          "-np means different things elsewhere; use --np N for ranks or --parallel N for "
          "sequences");
    }
    const auto alias = kAliases.find(argument);
    arguments.push_back(alias == kAliases.end() ? argument : alias->second);
  }
  return arguments;
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
  RawOptions raw;
  const po::options_description options = VerbOptions(s, raw);
  po::positional_options_description positional;
  if (s.verb != "synth" && s.verb != "fabric") positional.add("model", 1);
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
  return CheckOptions(raw, s);
}

}  // namespace

Result<Settings> ParseCommandLine(int argc, const char* const* argv) {
  Settings settings;
  const std::string verb = argc > 1 ? argv[1] : "";
  if (verb == "--version" || verb == "--help" || verb == "-h" || verb == "help") {
    settings.help = verb == "--version" ? "trine " TRINE_VERSION "\n" : kUsage;
    return settings;
  }
  constexpr const char* kVerbs[] = {"run",  "bench",    "perplexity", "fabric", "inspect",
                                    "plan", "tokenize", "convert",    "synth"};
  if (std::find(std::begin(kVerbs), std::end(kVerbs), verb) == std::end(kVerbs)) {
    return UsageError((verb.empty() ? "no verb" : "unknown verb '" + verb + "'") +
                      "; run, bench, perplexity, fabric, inspect, plan, tokenize, convert and "
                      "synth exist (trine --help)");
  }
  settings.verb = verb;
  TRINE_ASSIGN(const std::vector<std::string> arguments, ExpandAliases(argc, argv));
  try {
    TRINE_RETURN_IF_ERROR(Parse(arguments, settings));
  } catch (const po::error& error) {
    return UsageError(std::string(error.what()) + " (trine " + verb + " --help)");
  }
  return settings;
}

}  // namespace trine
