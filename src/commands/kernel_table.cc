#include <cstdio>
#include <map>
#include <set>
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

void PrintKernels(const std::vector<std::vector<Claim>>& claims_by_rank) {
  using Row = std::tuple<std::string, std::string, std::string, std::string, std::string>;
  std::map<Row, std::set<const TensorInfo*>> rows;
  for (const auto& claims : claims_by_rank) {
    for (const Claim& claim : claims) {
      const std::string name = ClassOf(claim.tensor->name), type = Info(claim.tensor->type).name;
      if (claim.streamed) {
        rows[{name, type, "in the file", "f32", ""}].insert(claim.tensor);
      } else if (!claim.kernel.layout.empty()) {
        rows[{name, type, claim.kernel.layout, claim.kernel.arithmetic, claim.kernel.reason}]
            .insert(claim.tensor);
      }
    }
  }
  for (const auto& [row, tensors] : rows) {
    const auto& [name, type, layout, arithmetic, reason] = row;
    std::fprintf(stderr, "  %-20s %-7s x %-3zu %s, %s%s%s%s\n", name.c_str(), type.c_str(),
                 tensors.size(), layout.c_str(), arithmetic.c_str(), reason.empty() ? "" : " (",
                 reason.c_str(), reason.empty() ? "" : ")");
  }
}

}  // namespace trine
