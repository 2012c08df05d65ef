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

Status RunVerb(const Settings& settings, Ranks ranks) {
  const bool many_ranks_verb =
      settings.verb == "run" || settings.verb == "bench" || settings.verb == "perplexity";
  if ((!settings.help.empty() || !many_ranks_verb) && ranks.world.rank != 0) return {};
  if (!settings.help.empty()) {
    std::fputs(settings.help.c_str(), stdout);
    return {};
  }
  if (settings.verb == "run") return RunCommand(settings, ranks);
  if (settings.verb == "bench") return BenchCommand(settings, ranks);
  if (settings.verb == "perplexity") return PerplexityCommand(settings, ranks);
  if (settings.verb == "inspect") return InspectCommand(settings);
  if (settings.verb == "plan") return PlanCommand(settings);
  if (settings.verb == "synth") return SynthCommand(settings);
  if (settings.verb == "convert") return ConvertCommand(settings);
  return TokenizeCommand(settings);
}

// What a library throws ends the whole job: other ranks may be waiting for this one.
Status RunGuarded(const Settings& settings, Ranks ranks) {
  try {
    return RunVerb(settings, ranks);
  } catch (const std::bad_alloc&) {
    ranks.comm.Abort("out of memory");
  } catch (const std::exception& failure) {
    ranks.comm.Abort(failure.what());
  }
  std::abort();  // gcc forgets noreturn on virtual functions
}

Result<std::unique_ptr<Communicator>> MakeCommunicator(const MpiJob& job,
                                                       const Settings& settings) {
  if (settings.comm == "mpi") return job.MakeMpiCommunicator();
  if (job.one_host()) return job.MakeShmCommunicator();
  if (settings.comm == "auto") return job.MakeMpiCommunicator();
  return BadInput("--comm shm: the ranks are on several hosts; use --comm mpi");
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
  if (!shared.ok()) return Report(shared.status(), world);
  OwnProgress().Enter(Phase::kStartUp);
  Result<std::unique_ptr<Communicator>> comm = MakeCommunicator(job, *shared);
  if (!comm.ok()) return Report(comm.status(), world);
  const std::unique_ptr<Communicator> used = OwnFault().Falsify(std::move(*comm));
  const Status status = RunGuarded(*shared, {world, *control, *used});
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
  const std::unique_ptr<Communicator> comm = MakeSelfCommunicator();
  return Report(RunGuarded(*settings, {world, *control, *comm}), world);
}

}  // namespace
}  // namespace trine

int main(int argc, char** argv) {
  return trine::Main(argc, argv);
}
