#include "src/engine/timed_communicator.h"

#include <algorithm>

#include "src/core/check.h"

namespace trine {

CollectiveTimes SplitCollectives(const std::vector<std::vector<CollectiveNote>>& notes) {
  CollectiveTimes sum;
  for (size_t i = 0; i < notes[0].size(); ++i) {
    int64_t last = notes[0][i].entry;
    for (const auto& rank : notes) {
      TRINE_CHECK(rank.size() == notes[0].size(), "every rank takes part in every collective");
      last = std::max(last, rank[i].entry);
    }
    for (const auto& rank : notes) {
      const auto [entry, exit] = rank[i];
      const int64_t waited = std::min(last, exit) - entry;
      sum.wait += static_cast<double>(waited);
      sum.comm += static_cast<double>(exit - entry - waited);
    }
  }
  const auto ranks = static_cast<double>(notes.size());
  return {sum.comm / ranks, sum.wait / ranks};
}

}  // namespace trine
