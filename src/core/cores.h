// Which cores this process may use, and what its launcher left of them.
#pragma once

#include <string>

namespace trine {

struct CoreCount {
  int mine = 1;  // this process may run on
  int host = 1;  // the launcher may run on: all there are for this job's ranks on this host
};
CoreCount CountCores();

// Threads for one of `local_ranks` ranks when nothing is asked for: a fair share of the host's
// cores, no more than this rank may use.
int DefaultThreads(const CoreCount& cores, int local_ranks);

// A warning if there are fewer cores than ranks, or if a rank has fewer than threads, or than its
// fair share: Open MPI binds each rank to one core when there are one or two. Empty if all is well.
std::string BindingWarning(const CoreCount& cores, int local_ranks, int threads);

}  // namespace trine
