// `trine VERB --np N`: the same as typing mpirun -np N trine VERB, with the flags that Open MPI
// needs on this host. This process stays as the job's supervisor (supervisor.h).
#pragma once

#include <string>
#include <vector>

#include "src/core/result.h"

namespace trine {

// mpirun with N ranks of this program and its arguments. Sets environment variables that mpirun
// reads and the user has not set.
Result<std::vector<std::string>> MpirunCommand(int ranks, char** argv);

// Runs it to its end. Returns its exit code, or an error if it cannot be started.
Result<int> SelfLaunch(int ranks, char** argv);

}  // namespace trine
