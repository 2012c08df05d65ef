#include <cstdio>
#include <map>
#include <tuple>

#include "src/commands/commands.h"

namespace trine {
namespace {

// "blk.7.ffn_up.weight" is of class "ffn_up.weight".
std::string ClassOf(const std::string& name) {
  if (!name.starts_with("blk.")) return name;
  return name.substr(name.find('.', 4) + 1);
}

}  // namespace

void PrintKernels(const std::vector<Claim>& claims) {
  using Row = std::tuple<std::string, std::string, std::string, std::string, std::string>;
  std::map<Row, int> rows;
  for (const Claim& claim : claims) {
    const std::string name = ClassOf(claim.tensor->name), type = Info(claim.tensor->type).name;
    if (claim.streamed) {
      ++rows[{name, type, "in the file", "f32", ""}];
    } else if (!claim.kernel.layout.empty()) {
      ++rows[{name, type, claim.kernel.layout, claim.kernel.arithmetic, claim.kernel.reason}];
    }
  }
  for (const auto& [row, count] : rows) {
    const auto& [name, type, layout, arithmetic, reason] = row;
    std::fprintf(stderr, "  %-20s %-7s x %-3d %s, %s%s%s%s\n", name.c_str(), type.c_str(), count,
                 layout.c_str(), arithmetic.c_str(), reason.empty() ? "" : " (", reason.c_str(),
                 reason.empty() ? "" : ")");
  }
}

}  // namespace trine
