// The watchdog: a thread of every rank that ends its process when the job cannot go on, and says
// why. It touches neither MPI nor a device, so it still runs when these hang.
//
// Every rank keeps a TCP connection to rank 0 (over loopback where they share a host). The kernel
// closes a connection when a process ends, however it ends, so a death is seen at once; several
// times a second both sides send where they are (progress.h), so one that is stopped, or cut off,
// is missed; and a rank that stands still beyond its phase's deadline reports itself. Rank 0
// decides who is to blame and tells all: each prints one line and ends with status 1.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/control.h"
#include "comm/progress.h"
#include "comm/status.h"

namespace trine {

struct Patience {
  // How long a rank may stand still in a step, idle or while shutting down; start-up has four times
  // as long, the fabric check twice, loading ten times. Also how long it may be silent in any
  // phase, but no more than 10 s. 0: for ever.
  std::chrono::milliseconds step{30000};
};

class Watchdog {
 public:
  // Starts the thread; it watches this process alone until Join. SIGTERM is blocked in the calling
  // thread and in those it will start: the watchdog takes it, waits a moment for the reason to
  // arrive and ends the process. One a process; must outlive MPI.
  // launcher: a descriptor that gets a byte when the hosts have lost each other, so that what started
  // this process cannot end by itself; -1: none.
  explicit Watchdog(int launcher);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Collective. Connects the ranks. Blocks until all are, or returns why this one is not; the
  // caller agrees on that.
  Status Join(ControlChannel& control, bool one_host, const Patience& patience);

  // Not collective: this rank is done, and its end is no death any more. Its own deadlines go on.
  void Leave();

 private:
  class Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace trine
