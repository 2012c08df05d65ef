// The paths by which the ranks of a job may exchange data, and which of them it takes.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/control.h"
#include "comm/mpi.h"
#include "src/core/result.h"
#include "src/core/settings.h"

namespace trine {

using DataPaths = std::vector<std::unique_ptr<Communicator>>;

// Collective. What --comm allows and this job can have, best first, at least one. Where ranks of
// one host cannot share memory, this is a warning, or an error with --comm shm. All ranks return
// alike.
Result<DataPaths> MakeDataPaths(const MpiJob& job, const Settings& settings,
                                ControlChannel& control);

// Collective. Checks the paths (comm/fabric_check.h) until one gives right data, says on stderr how
// it does, and drops the others. A wrong one is an error with an explicit --comm, else a warning;
// to have no right one is an error. All ranks return alike.
Status KeepSoundPath(const Settings& settings, ControlChannel& control, DataPaths* paths);

}  // namespace trine
