// The options of each verb: names, defaults, one line of help each.
#pragma once

#include <boost/program_options.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "src/core/settings.h"

namespace trine {

// What the parser fills as text, for CheckOptions (cli_check.h) to turn into Settings.
struct RawOptions {
  std::string config, device = "auto", reduce = "exact", cache_k, cache_v, split, restart = "no";
  std::vector<std::string> prompt;
  std::string bench_prompt = "512", bench_generate = "128", bench_depth = "0", bench_batch = "512";
  std::string bench_parallel = "1";
  std::vector<std::string> bench_pairs;
  std::string shard_size, kv_memory, memory;
  std::vector<std::string> logit_bias, stop;
  int64_t seed = -1;
  bool no_escape = false, no_parse_special = false;
};

// The options of settings.verb. They write to `settings` and `raw` when notified: both must outlive
// them.
boost::program_options::options_description VerbOptions(Settings& settings, RawOptions& raw);

}  // namespace trine
