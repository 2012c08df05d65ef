// trine: parse the command line, learn which rank this is, run the verb.
// Read on with src/commands/run.cc, src/engine/session.cc (start-up) and src/engine/rank_loop.cc.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>

#include "comm/fault.h"
#include "comm/mpi.h"
#include "comm/progress.h"
#include "comm/watchdog.h"
#include "launcher/cli.h"
#include "launcher/data_path.h"
#include "launcher/janitor.h"
#include "launcher/self_launch.h"
#include "launcher/settings_wire.h"
#include "src/commands/commands.h"

namespace trine {
namespace {

int ExitCode(const Status& status) {
  return status.ok() ? 0 : status.code() == Code::kUsage ? 2 : 1;
}

// What was printed must have arrived.
Status FlushStdout() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
  return BadInput("cannot write to standard output; is the disk full?");
}

// One line, from rank 0 alone: every rank has come to the same status.
int Report(Status status, const World& world) {
  if (status.ok()) status = FlushStdout();
  if (!status.ok() && world.rank == 0) {
    std::fprintf(stderr, "trine: %s\n", status.message().c_str());
  }
  return ExitCode(status);
}

// Whether all ranks take part, and not rank 0 alone.
bool IsCollective(const Settings& settings) {
  const std::string& verb = settings.verb;
  return settings.help.empty() &&
         (verb == "run" || verb == "bench" || verb == "perplexity" || verb == "fabric");
}

Status RunVerb(const Settings& settings, Ranks ranks, const DataPaths& paths) {
  if (!IsCollective(settings) && ranks.world.rank != 0) return {};
  if (!settings.help.empty()) {
    std::fputs(settings.help.c_str(), stdout);
    return {};
  }
  if (settings.verb == "run") return RunCommand(settings, ranks);
  if (settings.verb == "bench") return BenchCommand(settings, ranks);
  if (settings.verb == "perplexity") return PerplexityCommand(settings, ranks);
  if (settings.verb == "fabric") return FabricCommand(settings, ranks.control, paths);
  if (settings.verb == "inspect") return InspectCommand(settings);
  if (settings.verb == "plan") return PlanCommand(settings);
  if (settings.verb == "synth") return SynthCommand(settings);
  if (settings.verb == "convert") return ConvertCommand(settings);
  return TokenizeCommand(settings);
}

// With the first of the paths, and all of them for the verb that compares them. What a library
// throws ends the whole job: other ranks may be waiting for this one.
Status RunGuarded(const Settings& settings, ControlChannel& control, const DataPaths& paths) {
  Communicator& comm = *paths.front();
  try {
    return RunVerb(settings, {control.world(), control, comm}, paths);
  } catch (const std::bad_alloc&) {
    comm.Abort("out of memory");
  } catch (const std::exception& failure) {
    comm.Abort(failure.what());
  }
  std::abort();  // gcc forgets noreturn on virtual functions
}

// Collective. All ranks must do the same thing, and as many of them as --np says.
Status CheckJob(int argc, char** argv, const Result<Settings>& settings, ControlChannel& control) {
  Bytes command_line;
  for (int i = 1; i < argc; ++i) {
    const auto* text = reinterpret_cast<const std::byte*>(argv[i]);
    command_line.insert(command_line.end(), text, text + std::strlen(argv[i]) + 1);
  }
  const std::vector<Bytes> all = control.AllGather(command_line);
  const World& world = control.world();
  if (!settings.ok()) return settings.status();
  if (all[static_cast<size_t>(world.rank)] != all[0]) {
    return BadInput("its command line is not that of rank 0; start all ranks with the same one");
  }
  if (settings->np == 0 || settings->np == world.size) return {};
  return BadInput("--np " + std::to_string(settings->np) + " inside a job of " +
                  std::to_string(world.size) + " ranks; leave one of them out");
}

// Collective: the settings that rank 0 has, and ranks that watch each other.
Result<Settings> ShareSettings(const Settings& mine, bool one_host, ControlChannel& control,
                               Watchdog& watchdog) {
  Bytes message = EncodeSettings(mine);
  control.Broadcast(message, /*root=*/0);
  Settings shared = DecodeSettings(message);
  const auto step = std::chrono::milliseconds(static_cast<int64_t>(1000 * shared.step_timeout));
  TRINE_RETURN_IF_ERROR(control.Agree(watchdog.Join(control, one_host, {step})));
  return shared;
}

// Collective. Leaves the paths, whose end is collective too, to the caller.
Status RunJob(const MpiJob& job, const Settings& settings, ControlChannel& control,
              DataPaths* paths) {
  OwnProgress().Enter(Phase::kStartUp);
  TRINE_ASSIGN(*paths, MakeDataPaths(job, settings, control));
  if (IsCollective(settings) && settings.verb != "fabric") {  // which is this check itself
    TRINE_RETURN_IF_ERROR(KeepSoundPath(settings, control, paths));
    OwnProgress().Enter(Phase::kStartUp);
  }
  return RunGuarded(settings, control, *paths);
}

int RunRank(int argc, char** argv, const Result<Settings>& settings) {
  Watchdog watchdog(StartJanitor());
  MpiJob job(&argc, &argv);
  const World world = job.world();
  const std::string warning = OwnFault().Arm(world.rank);
  if (!warning.empty() && world.rank == 0)
    std::fprintf(stderr, "trine: warning: %s\n", warning.c_str());
  const std::unique_ptr<ControlChannel> control = job.MakeControl();
  const Status agreed = control->Agree(CheckJob(argc, argv, settings, *control));
  if (!agreed.ok()) return Report(agreed, world);
  const Result<Settings> shared = ShareSettings(*settings, job.one_host(), *control, watchdog);
  if (!shared.ok()) {
    watchdog.Leave();
    return Report(shared.status(), world);
  }
  DataPaths paths;
  const Status status = RunJob(job, *shared, *control, &paths);
  OwnProgress().Enter(Phase::kShutdown);
  watchdog.Leave();
  return Report(status, world);
}

int Main(int argc, char** argv) {
  const Result<Settings> settings = ParseCommandLine(argc, argv);
  if (LaunchedByMpi()) return RunRank(argc, argv, settings);

  const World world;
  if (!settings.ok()) return Report(settings.status(), world);
  if (settings->np > 1) {
    const Result<int> code = SelfLaunch(settings->np, argv);
    return code.ok() ? *code : Report(code.status(), world);
  }
  const std::unique_ptr<ControlChannel> control = MakeSelfControl();
  DataPaths paths;
  paths.push_back(MakeSelfCommunicator());
  return Report(RunGuarded(*settings, *control, paths), world);
}

}  // namespace
}  // namespace trine

int main(int argc, char** argv) {
  return trine::Main(argc, argv);
}
