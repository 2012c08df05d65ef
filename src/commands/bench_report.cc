#include "src/commands/bench_report.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "comm/communicator.h"

namespace trine {
namespace {

using Json = nlohmann::ordered_json;

std::string UtcNow() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string Processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

Json OrNull(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json ToJson(const BenchSubject& subject, const BenchResult& result, const std::string& time) {
  Json split;
  for (const auto& [name, share] : result.split) split[name] = share;
  return {{"model", subject.model},
          {"type", subject.type},
          {"model_filename", subject.file},
          {"model_size", subject.bytes},
          {"model_n_params", subject.parameters},
          {"np", subject.np},
          {"threads", subject.threads},
          {"device", subject.device},
          {"comm", subject.comm},
          {"compute", subject.compute},
          {"cache_type", subject.cache_type},
          {"n_batch", result.test.batch},
          {"n_prompt", result.test.prompt},
          {"n_gen", result.test.generate},
          {"n_depth", result.test.depth},
          {"n_parallel", result.test.parallel},
          {"test", result.test.Name()},
          {"tokens_per_second", result.mean},
          {"stddev", result.stddev},
          {"samples_ts", result.samples},
          {"weight_gb_per_second", OrNull(result.weight_gb_per_second)},
          {"read_gb_per_second", OrNull(result.read_gb_per_second)},
          {"read_fraction", OrNull(result.read_fraction)},
          {"comm_fraction", OrNull(result.comm_fraction)},
          {"wait_fraction", OrNull(result.wait_fraction)},
          {"split", split},
          {"version", TRINE_VERSION},
          {"commit", TRINE_COMMIT},
          {"mpi", MpiLibrary()},
          {"cpu", Processor()},
          {"test_time", time}};
}

// File names need not be UTF-8.
std::string Dump(const Json& row, int indent) {
  return row.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

// One level: "split": {"linear": ...} becomes "split_linear"; without lists.
Json Flatten(const Json& row) {
  Json flat;
  for (const auto& [name, value] : row.items()) {
    if (value.is_object()) {
      for (const auto& [inner, share] : value.items()) flat[name + "_" + inner] = share;
    } else if (!value.is_array()) {
      flat[name] = value;
    }
  }
  return flat;
}

// The values of a flat row with commas between; text in `quote`, doubled inside it.
std::string Values(const Json& flat, char quote, const char* null) {
  std::string line;
  for (const Json& value : flat) {
    if (!line.empty()) line += ',';
    if (!value.is_string()) {
      line += value.is_null() ? null : value.dump();
      continue;
    }
    line += quote;
    for (const char c : value.get<std::string>()) line.append(c == quote ? 2 : 1, c);
    line += quote;
  }
  return line;
}

// Its names, as CSV and SQL both take them; SQL's types behind them for a table.
std::string Names(const Json& flat, bool with_types) {
  std::string line;
  for (const auto& [name, value] : flat.items()) {
    line += (line.empty() ? "\"" : ",\"") + name + '"';
    if (!with_types) continue;
    line += value.is_string() ? " TEXT" : value.is_number_integer() ? " INTEGER" : " REAL";
  }
  return line;
}

struct Column {
  const char* name;
  int width;  // in characters; negative: to the left, as of printf
};
constexpr Column kColumns[] = {{"model", -7},        {"type", -7},    {"size", 11},  {"params", 8},
                               {"device", -22},      {"comm", -4},    {"np", 2},     {"n_batch", 7},
                               {"test", 19},         {"t/s", 17},     {"comm %", 6}, {"wait %", 6},
                               {"weights GB/s", 12}, {"% of read", 9}};

void PrintMarkdownRow(const std::vector<std::string>& cells) {
  for (size_t i = 0; i < cells.size(); ++i) {
    const int more = cells[i].find("±") == std::string::npos ? 0 : 1;  // bytes than characters
    std::printf("| %*s ", kColumns[i].width + more, cells[i].c_str());
  }
  std::printf("|\n");
}

void PrintMarkdownHeader() {
  std::vector<std::string> names, lines;
  for (const Column& column : kColumns) {
    names.emplace_back(column.name);
    lines.emplace_back(static_cast<size_t>(std::abs(column.width)), '-');
    if (column.width > 0) lines.back().back() = ':';
  }
  PrintMarkdownRow(names);
  PrintMarkdownRow(lines);
}

std::string Fixed(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string Percent(const std::optional<double>& share) {
  return share ? Fixed(*share * 100, 1) : "";
}

// As llama-bench has it: below one of the large unit in the small one.
std::string InUnits(double value, double large_unit, const char* small, const char* large) {
  return value < large_unit ? Fixed(value, 2) + small : Fixed(value / large_unit, 2) + large;
}

void PrintMarkdown(const BenchSubject& subject, const BenchResult& result) {
  const std::optional<double>& weights = result.weight_gb_per_second;
  PrintMarkdownRow({subject.model, subject.type,
                    InUnits(static_cast<double>(subject.bytes) / 0x1p20, 1024, " MiB", " GiB"),
                    InUnits(static_cast<double>(subject.parameters) / 1e6, 1000, " M", " B"),
                    subject.device, subject.comm, std::to_string(subject.np),
                    std::to_string(result.test.batch), result.test.Name(),
                    Fixed(result.mean, 2) + " ± " + Fixed(result.stddev, 2),
                    Percent(result.comm_fraction), Percent(result.wait_fraction),
                    weights ? Fixed(*weights, 2) : "", Percent(result.read_fraction)});
}

std::string SplitLine(const BenchResult& result) {
  std::string line = result.test.Name() + ":";
  for (const auto& [name, share] : result.split) {
    if (share != 0) line += " " + name + " " + Percent(share) + " %,";
  }
  line.back() = '\n';
  return line;
}

}  // namespace

std::string BenchTest::Name() const {
  std::string name;
  if (prompt > 0) name = "pp" + std::to_string(prompt);
  if (generate > 0) name += (name.empty() ? "tg" : "+tg") + std::to_string(generate);
  if (parallel > 1) name += " x" + std::to_string(parallel);
  return depth > 0 ? name + " @ d" + std::to_string(depth) : name;
}

BenchReport::BenchReport(BenchSubject subject, std::string form)
    : subject_(std::move(subject)), form_(std::move(form)), time_(UtcNow()) {}

void BenchReport::Add(const BenchResult& result) {
  const bool first = rows_++ == 0;
  const Json row = ToJson(subject_, result, time_), flat = Flatten(row);
  if (form_ == "json") {
    std::printf("%s%s", first ? "[\n" : ",\n", Dump(row, 2).c_str());
  } else if (form_ == "jsonl") {
    std::printf("%s\n", Dump(row, -1).c_str());
  } else if (form_ == "csv") {
    if (first) std::printf("%s\n", Names(flat, /*with_types=*/false).c_str());
    std::printf("%s\n", Values(flat, '"', "").c_str());
  } else if (form_ == "sql") {
    if (first) {
      std::printf("CREATE TABLE IF NOT EXISTS trine_bench (%s);\n",
                  Names(flat, /*with_types=*/true).c_str());
    }
    std::printf("INSERT INTO trine_bench (%s) VALUES (%s);\n",
                Names(flat, /*with_types=*/false).c_str(), Values(flat, '\'', "NULL").c_str());
  } else {
    if (first) PrintMarkdownHeader();
    PrintMarkdown(subject_, result);
    footer_ += SplitLine(result);
  }
  std::fflush(stdout);
}

void BenchReport::Finish() {
  if (form_ == "json") std::printf("\n]\n");
  if (form_ != "md") return;
  std::printf("\n%s\nbuild: %s, Trine %s, %s\n", footer_.c_str(), TRINE_COMMIT, TRINE_VERSION,
              MpiLibrary().c_str());
}

}  // namespace trine
