// Answers HTTP requests with 503 while the service behind a listening socket is not there, so that
// clients and load balancers learn that it comes back. Knows of HTTP only where a head ends.
#pragma once

#include <poll.h>

#include <chrono>
#include <string>
#include <vector>

#include "comm/socket.h"

namespace trine {

class StandIn {
 public:
  // Adds what Work has to be called for: clients, and the listener while `accepting`.
  void Await(int listener, bool accepting, std::vector<pollfd>& waiting) const;

  // Accepts, if it should, and goes on with every client: reads the request's head (16 KB and 5 s
  // at the most), answers 503 with an error object that holds `message` (plain text without
  // quotes), and reads on for up to 2 s until the client has closed, as closing earlier would throw
  // the answer away. Never blocks; to be called every 100 ms while there are clients.
  void Work(int listener, bool accepting, const std::string& message);

  bool has_clients() const { return !clients_.empty(); }

 private:
  struct Client {
    Socket socket;
    std::string head;
    std::chrono::steady_clock::time_point deadline;
    bool answered = false;
  };

  bool HasRoom() const;
  void Accept(int listener);
  static bool GoOn(Client& client, const std::string& message);

  std::vector<Client> clients_;
};

}  // namespace trine
