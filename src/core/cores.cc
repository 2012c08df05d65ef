#include "src/core/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

namespace trine {
namespace {

// 0 if the process cannot be asked.
int AllowedCores(pid_t process) {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(process, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

}  // namespace

CoreCount CountCores() {
  CoreCount cores;
  cores.mine = std::max(1, AllowedCores(0));
  cores.host = std::max(cores.mine, AllowedCores(getppid()));
  return cores;
}

int DefaultThreads(const CoreCount& cores, int local_ranks) {
  return std::max(1, std::min(cores.mine, cores.host / local_ranks));
}

std::string BindingWarning(const CoreCount& cores, int local_ranks, int threads) {
  if (local_ranks > cores.host) {
    return std::to_string(local_ranks) + " ranks share " + std::to_string(cores.host) +
           (cores.host == 1 ? " core" : " cores") +
           " and wait for each other in turn; start no more ranks than cores";
  }
  const int wanted = std::max(threads, cores.host / local_ranks);
  if (cores.mine >= wanted) return "";
  if (cores.mine == cores.host) {
    return std::to_string(threads) + " threads a rank on " + std::to_string(cores.mine) +
           (cores.mine == 1 ? " core" : " cores") + "; more threads than cores are slower";
  }
  return "each rank is bound to " + std::to_string(cores.mine) + " of " +
         std::to_string(cores.host) + " cores and runs " + std::to_string(threads) +
         (threads == 1 ? " thread" : " threads") +
         "; give mpirun --bind-to none, or start with trine --np";
}

}  // namespace trine
