// For supervisor_test.py: a Supervisor around any command, and a service that has no model.
//
//   stub_service supervise [NAME=VALUE...] -- COMMAND...    prints "port N" if a port is given
//   mpirun -np 2 stub_service serve LOAD_MS DRAIN_MS [...]  answers every request with 200
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

#include "comm/handover.h"
#include "comm/mpi.h"
#include "launcher/janitor.h"
#include "launcher/supervisor.h"

namespace trine {
namespace {

using std::chrono::milliseconds;

std::atomic<bool> drain{false};

int Fail(const Status& status) {
  std::fprintf(stderr, "stub_service: %s\n", status.message().c_str());
  return 1;
}

int Supervise(int argc, char** argv) {
  std::map<std::string, int> values;
  int i = 2;
  for (; i < argc && std::string(argv[i]) != "--"; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    values[word.substr(0, equals)] = std::stoi(word.substr(equals + 1));
  }
  Supervision plan;
  plan.command.assign(argv + i + 1, argv + argc);
  const auto set = [&](const char* name, milliseconds& value) {
    if (values.count(name) != 0) value = milliseconds(values[name]);
  };
  set("drain_timeout", plan.drain_timeout);
  set("first_pause", plan.first_pause);
  set("longest_pause", plan.longest_pause);
  set("settled", plan.settled);
  plan.restart = values["restart"] != 0;
  if (values.count("port") != 0) {
    Result<Socket> listener = ListenOn("127.0.0.1", values["port"]);
    if (!listener.ok()) return Fail(listener.status());
    sockaddr_in address{};
    socklen_t size = sizeof address;
    getsockname(listener->fd(), reinterpret_cast<sockaddr*>(&address), &size);
    std::printf("port %d\n", ntohs(address.sin_port));
    std::fflush(stdout);
    plan.listener = std::move(*listener);
  }
  const Result<int> code = Supervisor(std::move(plan)).Run();
  return code.ok() ? *code : Fail(code.status());
}

// One client at a time: a request that fits one read, an answer that names this process.
void Answer(int listener) {
  pollfd waiting = {listener, POLLIN, 0};
  if (poll(&waiting, 1, 20) != 1) return;
  const Socket client(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  char request[4096];
  if (client.fd() < 0 || recv(client.fd(), request, sizeof request, 0) <= 0) return;
  const std::string body = std::to_string(getpid());
  const std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) +
                             "\r\nConnection: close\r\n\r\n" + body;
  static_cast<void>(!send(client.fd(), answer.data(), answer.size(), MSG_NOSIGNAL));
}

int Serve(int argc, char** argv) {
  std::signal(SIGUSR1, [](int) { drain = true; });
  StartJanitor();
  MpiJob job(&argc, &argv);
  Lease lease;
  if (job.world().rank == 0) {
    const Status taken = lease.Take();
    if (!taken.ok()) return Fail(taken);
    std::this_thread::sleep_for(milliseconds(std::atoi(argv[2])));
    const Status ready = lease.SayReady();
    if (!ready.ok()) return Fail(ready);
  }
  while (!drain) {
    if (job.world().rank == 0) Answer(lease.listener());
    if (job.world().rank != 0) std::this_thread::sleep_for(milliseconds(20));
  }
  lease.Return();
  std::this_thread::sleep_for(milliseconds(std::atoi(argv[3])));
  return 0;
}

}  // namespace
}  // namespace trine

int main(int argc, char** argv) {
  const std::string part = argc > 1 ? argv[1] : "";
  if (part == "supervise") return trine::Supervise(argc, argv);
  if (part == "serve" && argc > 3) return trine::Serve(argc, argv);
  std::fprintf(stderr, "stub_service supervise|serve, see stub_service.cc\n");
  return 2;
}
