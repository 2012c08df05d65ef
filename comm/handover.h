// How a listening socket gets from a supervisor to rank 0 of its job. Open MPI closes what its
// ranks would inherit, so the socket travels over an AF_UNIX connection (SCM_RIGHTS, unix(7)),
// whose abstract name rank 0 finds in an environment variable. The connection stays open for as
// long as rank 0 accepts: when it closes, however rank 0 ended, the supervisor knows that nobody
// does.
//
//   rank 0                          supervisor
//   connects                        sends a byte, and with it the socket
//   sends a byte: ready             stops accepting
//   closes, or ends                 accepts again
//
// Both sides hold one socket: no client is ever refused, whoever accepts. Only processes of one
// user on one host talk to each other.
#pragma once

#include <poll.h>

#include <vector>

#include "comm/socket.h"
#include "comm/status.h"

namespace trine {

// Rank 0's side.
//
//   Lease lease;
//   if (Lease::IsOffered()) error = lease.Take(); ... lease.SayReady(); ...
//   accept(lease.listener())
class Lease {
 public:
  // Whether a supervisor started this job and has a socket for it. Reads the environment only.
  static bool IsOffered();

  // Blocks until the socket is here, for 10 s at the most. An error says what failed.
  Status Take();

  // Listening and not blocking: poll before accept, and take EAGAIN for an answer, as the
  // supervisor may have been faster. Owned by the lease.
  int listener() const { return listener_.fd(); }

  // From now on connections are this process's. Before that the supervisor answers them with 503.
  Status SayReady();

  // The supervisor answers again: this process is about to end. So does the destructor.
  void Return();

 private:
  Socket connection_, listener_;
};

// The supervisor's side. Never blocks.
class Offer {
 public:
  // Sets the environment variable for the processes that this one will start.
  Status Open();

  // Adds what Work has to be called for.
  void Await(std::vector<pollfd>& waiting) const;

  // Gives `listener` to whoever asks, the last one counts, and learns whether it is ready.
  void Work(int listener);

  // Whether someone has the socket, is ready to accept and has not gone.
  bool is_taken() const { return ready_; }

  // Whoever had the socket is gone.
  void TakeBack();

 private:
  Socket door_, holder_;
  bool ready_ = false;
};

}  // namespace trine
