#include "launcher/self_launch.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "launcher/supervisor.h"

namespace trine {
namespace {

void SetDefault(const char* name, const char* value) {
  setenv(name, value, /*overwrite=*/0);
}

// The environment rather than flags: both Open MPI 4 (OMPI_MCA_) and 5 (PRTE_MCA_) read it, and
// what the user has set wins.
void PrepareEnvironment() {
  SetDefault("OMPI_MCA_rmaps_base_oversubscribe", "1");  // more ranks than cores
  SetDefault("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
  SetDefault("OMPI_MCA_hwloc_base_binding_policy", "none");  // threads need all cores
  SetDefault("PRTE_MCA_hwloc_default_binding_policy", "none");
  SetDefault("OMPI_MCA_orte_execute_quiet", "1");  // our own error line says it
  if (isatty(STDERR_FILENO) != 0) SetDefault("TRINE_ON_TERMINAL", "1");  // for the progress bar
  if (geteuid() != 0) return;
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                           "PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"}) {
    SetDefault(name, "1");
  }
}

}  // namespace

Result<std::vector<std::string>> MpirunCommand(int ranks, char** argv) {
  PrepareEnvironment();
  std::string self = "/proc/self/exe";
  if (char* path = realpath(self.c_str(), nullptr)) {
    self = path;
    std::free(path);
  }
  std::vector<std::string> command = {"mpirun", "-np", std::to_string(ranks), self};
  for (char** argument = argv + 1; *argument != nullptr; ++argument) {
    if (std::strcmp(*argument, ":") == 0) {
      return BadInput(
          "a lone ':' parts mpirun's programs; write it behind its option, as in "
          "--prompt=:");
    }
    command.push_back(*argument);
  }
  return command;
}

Result<int> SelfLaunch(int ranks, char** argv) {
  Supervision supervision;
  TRINE_ASSIGN(supervision.command, MpirunCommand(ranks, argv));
  const Result<int> code = Supervisor(std::move(supervision)).Run();
  if (code.ok()) return code;
  return BadInput("--np " + std::to_string(ranks) + ": " + code.status().message() +
                  "; install Open MPI (apt-get install openmpi-bin)");
}

}  // namespace trine
