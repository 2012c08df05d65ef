// trine convert: a model into another container or type.
#include "src/convert/convert.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <iterator>

#include "src/commands/commands.h"
#include "src/core/cores.h"
#include "src/core/quote.h"

namespace trine {
namespace {

Result<std::optional<DType>> ParseType(const std::string& name) {
  if (name.empty()) return std::optional<DType>();
  std::string upper;
  for (const char c : name) upper += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  constexpr DType kTypes[] = {DType::kF16,  DType::kBF16,  DType::kF32,
                              DType::kQ8_0, DType::kTQ1_0, DType::kTQ2_0,
                              DType::kQ2_0, DType::kPQ2_0, DType::kPTQ1_0};
  std::string known;
  for (const DType type : kTypes) {
    if (upper == Info(type).name) return std::optional(type);
    known += (known.empty() ? "" : ", ") + std::string(Info(type).name);
  }
  std::transform(known.begin(), known.end(), known.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return Status{Code::kUsage, "--type is '" + name + "'; possible are " + known};
}

// "3 tensors left out: 'a', 'b', ..." on stderr, if there are any.
void PrintList(const char* what, const std::vector<std::string>& names) {
  if (names.empty()) return;
  constexpr size_t kShown = 8;
  std::string list;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i)
    list += (i == 0 ? "" : ", ") + Quote(names[i]);
  std::fprintf(stderr, "%zu %s: %s%s\n", names.size(), what, list.c_str(),
               names.size() > kShown ? ", ..." : "");
}

}  // namespace

Status ConvertCommand(const Settings& settings) {
  ConvertOptions options;
  options.input = settings.model;
  options.output = settings.output_file;
  options.shard_bytes = settings.shard_bytes;
  options.threads =
      settings.threads > 0 ? settings.threads : DefaultThreads(CountCores(), /*local_ranks=*/1);
  TRINE_ASSIGN(options.type, ParseType(settings.type));
  const auto start = std::chrono::steady_clock::now();
  TRINE_ASSIGN(const Conversion done, Convert(options, TerminalProgress("converting")));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  PrintList("unexpected tensors, no part of this architecture, left out", done.unexpected);
  PrintList("tensors beside the language model left out", done.left_out);
  PrintList("matrices kept in their type, whose rows are no whole blocks of the new one",
            done.kept);
  std::fprintf(stderr, "%s: %zu tensors of %.1f MB in %.1f s (%.0f MB/s), none missing\n",
               options.output.c_str(), done.tensors.size(), static_cast<double>(done.bytes()) / 1e6,
               seconds, static_cast<double>(done.bytes()) / 1e6 / std::max(seconds, 1e-9));
  return {};
}

}  // namespace trine
