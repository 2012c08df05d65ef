// InParallel: a few threads for work that is not the Backend's, such as making bytes for a file.
#pragma once

#include <cstdint>
#include <thread>
#include <vector>

namespace trine {

// part(0) .. part(parts - 1), each on a thread of its own and the first on the caller's; returns
// when all have. parts is at least 1.
template <typename Part>
void InParallel(int64_t parts, const Part& part) {
  std::vector<std::jthread> helpers;
  for (int64_t i = 1; i < parts; ++i) helpers.emplace_back(part, i);
  part(int64_t{0});
}

}  // namespace trine
