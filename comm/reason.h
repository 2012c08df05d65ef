// Private to comm/: the line every rank leaves on stderr before it ends the job.
#pragma once

#include <cstdio>
#include <string_view>

#include "comm/world.h"

namespace trine {

// "[rank r/n] reason". One call, so that the lines of several ranks do not interleave.
inline void PrintReason(const World& world, std::string_view reason) {
  std::fprintf(stderr, "[rank %d/%d] %.*s\n", world.rank, world.size,
               static_cast<int>(reason.size()), reason.data());
}

}  // namespace trine
