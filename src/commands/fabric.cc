// trine fabric: every path between the ranks, with every collective at every size.
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "comm/fabric_check.h"
#include "src/commands/commands.h"
#include "src/core/cores.h"

namespace trine {
namespace {

void AddJson(const FabricReport& report, nlohmann::ordered_json* rows) {
  const auto rounded = [](double value) { return std::round(value * 1000) / 1000; };
  for (const FabricTest& test : report.tests) {
    rows->push_back({{"path", report.path},
                     {"op", FabricOpName(test.op)},
                     {"bytes", test.bytes},
                     {"correct", test.verdict != FabricVerdict::kWrong},
                     {"microseconds", rounded(test.microseconds)},
                     {"gb_per_second", rounded(test.gb_per_second())},
                     {"verdict", FabricVerdictName(test.verdict)}});
  }
}

// A row for each size, two columns for each operation.
void PrintTable(const FabricReport& report, int ranks) {
  std::printf("%s, %d %s: us, GB/s\n%8s", report.path.c_str(), ranks, ranks == 1 ? "rank" : "ranks",
              "");
  for (int op = 0; op < kFabricOps; ++op) {
    std::printf("  %19s", FabricOpName(static_cast<FabricOp>(op)));
  }
  for (const FabricTest& test : report.tests) {
    const bool first = test.op == FabricOp{};
    if (first) std::printf("\n%8s", FabricSizeText(test.bytes).c_str());
    if (test.verdict == FabricVerdict::kWrong) {
      std::printf("  %19s", "wrong");
    } else {
      std::printf("  %11.1f %7.2f", test.microseconds, test.gb_per_second());
    }
  }
  const FabricTest& worst = report.worst();
  std::printf("\n%s: %s%s%s\n\n", report.path.c_str(), FabricVerdictName(worst.verdict),
              worst.reason.empty() ? "" : "; ", worst.reason.c_str());
}

}  // namespace

Status FabricCommand(const Settings& settings, ControlChannel& control,
                     std::span<const std::unique_ptr<Communicator>> paths) {
  const World& world = control.world();
  const bool first = world.rank == 0;
  const std::string warning = BindingWarning(CountCores(), world.local_size, /*threads=*/1);
  if (first && !warning.empty()) std::fprintf(stderr, "trine: warning: %s\n", warning.c_str());
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  Status status;
  for (const std::unique_ptr<Communicator>& path : paths) {
    const FabricReport report = CheckFabric(*path, control, kFullScope);
    const FabricTest& worst = report.worst();
    if (status.ok() && worst.verdict == FabricVerdict::kWrong) {
      status = BadInput(report.path + ": " + worst.reason + "; the transport or the memory of a " +
                        "host is not sound");
    }
    AddJson(report, &rows);
    if (first && !settings.json) PrintTable(report, world.size);
  }
  if (first && settings.json) std::printf("%s\n", rows.dump(2).c_str());
  return status;
}

}  // namespace trine
