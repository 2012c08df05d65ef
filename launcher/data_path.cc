#include "launcher/data_path.h"

#include <cstdio>
#include <string>
#include <utility>

#include "comm/fabric_check.h"
#include "comm/fault.h"
#include "comm/shared_memory.h"

namespace trine {
namespace {

void Warn(const World& world, const std::string& text) {
  if (world.rank == 0) std::fprintf(stderr, "trine: warning: %s\n", text.c_str());
}

}  // namespace

Result<DataPaths> MakeDataPaths(const MpiJob& job, const Settings& settings,
                                ControlChannel& control) {
  const World& world = control.world();
  DataPaths paths;
  if (settings.comm != "mpi" && job.one_host()) {
    const std::string why =
        WhyNotShared(control, SharedMemoryFolder(), world.size * SharedBytesPerRank(world.size));
    if (why.empty()) {
      paths.push_back(OwnFault().Falsify(job.MakeShmCommunicator()));
    } else if (settings.comm == "shm") {
      return BadInput("--comm shm: " + why);
    } else {
      Warn(world, why + "; mpi is used, which is slower");
    }
  }
  if (settings.comm == "shm" && !job.one_host()) {
    return BadInput("--comm shm: the ranks are on several hosts; use --comm mpi");
  }
  if (settings.comm != "shm") paths.push_back(OwnFault().Falsify(job.MakeMpiCommunicator()));
  return paths;
}

Status KeepSoundPath(const Settings& settings, ControlChannel& control, DataPaths* paths) {
  const World& world = control.world();
  for (;;) {
    const FabricReport report = CheckFabric(*paths->front(), control, kStartUpScope);
    const FabricTest& worst = report.worst();
    if (worst.verdict != FabricVerdict::kWrong) {
      if (world.rank == 0) std::fprintf(stderr, "fabric: %s\n", report.Line().c_str());
      paths->resize(1);
      return {};
    }
    const std::string why = report.path + ": " + worst.reason;
    if (paths->size() == 1) {
      return BadInput(why + "; --comm " + settings.comm +
                      " leaves no other path, and the job ends " + "before a wrong answer");
    }
    paths->erase(paths->begin());
    Warn(world, why + "; " + std::string(paths->front()->name()) + " is used");
  }
}

}  // namespace trine
