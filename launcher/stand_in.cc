#include "launcher/stand_in.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

namespace trine {
namespace {

using Clock = std::chrono::steady_clock;

// Further clients wait in the listener's backlog.
constexpr size_t kMostClients = 128;
constexpr size_t kMostHeadBytes = 16 << 10;
constexpr std::chrono::seconds kHeadTimeout{5}, kCloseTimeout{2};

std::string Answer(const std::string& message) {
  const std::string body =
      R"({"error":{"code":503,"message":")" + message + R"(","type":"unavailable_error"}})";
  return "HTTP/1.1 503 Service Unavailable\r\n"
         "Content-Type: application/json\r\n"
         "Retry-After: 1\r\n"
         "Connection: close\r\n"
         "Content-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace

bool StandIn::HasRoom() const {
  return clients_.size() < kMostClients;
}

void StandIn::Await(int listener, bool accepting, std::vector<pollfd>& waiting) const {
  if (accepting && HasRoom()) waiting.push_back({listener, POLLIN, 0});
  for (const Client& client : clients_) waiting.push_back({client.socket.fd(), POLLIN, 0});
}

void StandIn::Work(int listener, bool accepting, const std::string& message) {
  if (accepting) Accept(listener);
  std::erase_if(clients_, [&](Client& client) { return !GoOn(client, message); });
}

void StandIn::Accept(int listener) {
  while (HasRoom()) {
    Socket socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.fd() < 0) return;
    clients_.push_back({std::move(socket), "", Clock::now() + kHeadTimeout});
  }
}

// Whether anything is left to do.
bool StandIn::GoOn(Client& client, const std::string& message) {
  if (Clock::now() >= client.deadline) return false;
  std::array<char, 4096> bytes{};
  const ssize_t n = recv(client.socket.fd(), bytes.data(), bytes.size(), 0);
  if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  if (n == 0) return false;
  if (client.answered) return true;
  client.head.append(bytes.data(), static_cast<size_t>(n));
  const bool whole = client.head.find("\r\n\r\n") != std::string::npos;
  if (!whole && client.head.size() < kMostHeadBytes) return true;
  // Short enough for any send buffer that is still empty.
  const std::string answer = Answer(message);
  const ssize_t sent = send(client.socket.fd(), answer.data(), answer.size(), MSG_NOSIGNAL);
  shutdown(client.socket.fd(), SHUT_WR);
  client.answered = true;
  client.deadline = Clock::now() + kCloseTimeout;
  return sent == static_cast<ssize_t>(answer.size());
}

}  // namespace trine
