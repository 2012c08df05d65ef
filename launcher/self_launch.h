// `trine VERB --np N`: the same as typing mpirun -np N trine VERB, with the flags that Open MPI
// needs on this host.
#pragma once

#include "src/core/result.h"

namespace trine {

// Replaces this process by mpirun with N ranks of the same command line; returns only on failure.
Status SelfLaunch(int ranks, char** argv);

}  // namespace trine
