// Speed of src/text on one core, and the ids of a file for the oracles.
//
//   text_bench [--text] TOKENIZER TEXT [IDS]
//
// TOKENIZER: a GGUF file or a tokenizer.json; TEXT: a file that is encoded as a whole, with control
// tokens parsed unless --text. Prints MB per CPU second of encoding and decoding (the best of
// several runs) and the peak memory; with IDS it writes the ids there as int32 and runs once.
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "src/text/tokenizer.h"
#include "src/weights/weight_store.h"

namespace trine {
namespace {

constexpr int kRuns = 7;

Result<std::unique_ptr<Tokenizer>> Open(const std::string& path) {
  if (path.ends_with(".json")) return Tokenizer::FromJson(path);
  TRINE_ASSIGN(const std::unique_ptr<WeightStore> store, OpenWeights(path));
  return Tokenizer::FromMetadata(store->metadata());
}

// Of this process, so that others on the machine count less.
double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <typename Work>
double BestSeconds(int runs, const Work& work) {
  double best = 1e9;
  for (int run = 0; run < runs; ++run) {
    const double begin = CpuSeconds();
    work();
    best = std::min(best, CpuSeconds() - begin);
  }
  return best;
}

int64_t PeakKiB() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

Status Run(const std::string& tokenizer_path, const std::string& text_path,
           const std::string& ids_path, Tokenizer::Special special) {
  TRINE_ASSIGN(const std::unique_ptr<Tokenizer> tokenizer, Open(tokenizer_path));
  std::ifstream file(text_path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  if (text.empty()) return BadInput(text_path + " is empty or not there; give a text");
  const int64_t before = PeakKiB();
  const int runs = ids_path.empty() ? kRuns : 1;
  Result<std::vector<int32_t>> ids = std::vector<int32_t>();
  const double encode = BestSeconds(runs, [&] { ids = tokenizer->Encode(text, special); });
  if (!ids.ok()) return ids.status();
  const int64_t after = PeakKiB();
  std::string decoded;
  decoded.reserve(text.size() + 1024);
  const double decode = BestSeconds(runs, [&] {
    decoded.clear();
    Detokenizer detokenizer(*tokenizer, Detokenizer::Start::kText);
    for (const int32_t id : *ids) decoded += detokenizer.Next(id);
    decoded += detokenizer.Finish();
  });
  const double megabytes = static_cast<double>(text.size()) * 1e-6;
  std::printf("%.1f MB, %zu ids: encode %.1f MB/s, decode %.1f MB/s, peak +%.0f MB, %s\n",
              megabytes, ids->size(), megabytes / encode, megabytes / decode,
              static_cast<double>(after - before) * 1024e-6,
              decoded == text ? "round trip" : "no round trip");
  if (ids_path.empty()) return {};
  std::ofstream out(ids_path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(ids->data()),
            static_cast<std::streamsize>(ids->size() * sizeof(int32_t)));
  out.flush();
  return out.good() ? Status() : BadInput(ids_path + " cannot be written; choose another place");
}

}  // namespace
}  // namespace trine

int main(int argc, char** argv) {
  const bool as_text = argc > 1 && std::strcmp(argv[1], "--text") == 0;
  const int first = as_text ? 2 : 1;
  if (argc - first < 2 || argc - first > 3) {
    std::fprintf(stderr, "usage: text_bench [--text] TOKENIZER TEXT [IDS]\n");
    return 2;
  }
  const trine::Status status =
      trine::Run(argv[first], argv[first + 1], argc - first == 3 ? argv[first + 2] : "",
                 as_text ? trine::Tokenizer::Special::kAsText : trine::Tokenizer::Special::kParse);
  if (!status.ok()) std::fprintf(stderr, "text_bench: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
