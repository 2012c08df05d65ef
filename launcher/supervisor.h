// Keeps a job (mpirun and its ranks) running for a process that stays in front of it: passes
// signals on, turns the job's end into an exit code, and for a service starts the job again after a
// failure while its listening socket stays open. One thread, one poll loop.
// The job's side of the socket is comm/handover.h.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "comm/handover.h"
#include "comm/socket.h"
#include "launcher/stand_in.h"
#include "src/core/result.h"

namespace trine {

// Binds and listens on HOST:PORT ("" is any address; port 0 any free one), without blocking. For
// Supervision::listener, or for a service that has no supervisor.
Result<Socket> ListenOn(const std::string& host, int port);

struct Supervision {
  std::vector<std::string> command;  // of the job; the program is looked up in PATH

  // A service: it takes the socket as comm/handover.h says and ends by itself after SIGUSR1, which
  // mpirun passes on to the ranks. None: a job of the foreground, with this terminal and its
  // Ctrl-C.
  Socket listener;
  std::chrono::milliseconds drain_timeout{30000};  // for what a service does after SIGUSR1

  // What follows a failure, an end with neither 0 nor 2 that nobody asked for.
  bool restart = false;
  std::chrono::milliseconds first_pause{500}, longest_pause{30000};  // it doubles
  std::chrono::milliseconds settled{60000};  // a job that ran so long starts from the first again
};

class Supervisor {
 public:
  explicit Supervisor(Supervision supervision);

  // Starts the job and stays until it has ended for good. Returns its exit code (that of the ranks,
  // as mpirun passes it on), 128 + the signal that killed it, or an error if it cannot be started.
  // The first SIGINT, SIGTERM or SIGUSR1 makes a service that accepts drain; the next one, or the
  // timeout, or the first one of any other job, sends SIGTERM; one more, or 5 s, SIGKILL; signals
  // less than 0.2 s apart count as one. These, SIGCHLD and SIGPIPE stay blocked in the calling
  // thread, which must be the only one. If this process dies, however, the kernel ends the job.
  Result<int> Run();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Stage { kRunning, kDraining, kTerminating, kKilling };

  bool is_service() const { return plan_.listener.fd() >= 0; }
  bool stands_in() const { return !offer_.is_taken(); }
  Status Prepare();
  Status Start();
  [[noreturn]] void BecomeJob(pid_t parent, int report);
  void Wait();
  void TakeSignals();
  void Escalate(bool told);
  void Enter(Stage stage, int signal, std::chrono::milliseconds patience);
  void Reap();
  void JobEnded(int code);
  void StartAgain();
  void TendSocket();

  const Supervision plan_;
  Socket signals_;
  Offer offer_;
  StandIn stand_in_;

  pid_t job_ = -1;  // mpirun; -1: none
  Clock::time_point started_;
  int code_ = 0;  // of the job that ended last
  std::chrono::milliseconds pause_;
  std::optional<Clock::time_point> start_at_;          // the job is to be started again
  Stage stage_ = Stage::kRunning;                      // beyond: someone asked for the end
  std::optional<Clock::time_point> asked_, deadline_;  // for the last time; of the stage
};

}  // namespace trine
