#include "launcher/supervisor.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "launcher/janitor.h"

namespace trine {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{50};
constexpr milliseconds kTermination{5000};  // for mpirun to end its ranks
constexpr milliseconds kOneRequest{200};    // timeout(1) signals the process and then its group
constexpr int kUsageCode = 2;               // which another start would not change

sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGPIPE}) sigaddset(&signals, signal);
  return signals;
}

// The first address of the list that can be listened on; else errno says why.
Socket ListenOnAny(const addrinfo* list) {
  constexpr int kOne = 1;
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    Socket made(socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (made.fd() < 0) continue;
    setsockopt(made.fd(), SOL_SOCKET, SO_REUSEADDR, &kOne, sizeof kOne);
    if (bind(made.fd(), at->ai_addr, at->ai_addrlen) == 0 && listen(made.fd(), SOMAXCONN) == 0) {
      return made;
    }
  }
  return Socket();
}

}  // namespace

Result<Socket> ListenOn(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const std::string name = host + ":" + std::to_string(port);
  const int error = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(),
                                &hints, &list);
  if (error != 0) {
    return BadInput("cannot listen on " + name + ": " + gai_strerror(error) +
                    "; give the name or address of this host");
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  Socket listener = ListenOnAny(list);
  if (listener.fd() >= 0) return listener;
  return BadInput("cannot listen on " + name + ": " + std::strerror(errno) +
                  "; choose another port or address");
}

Supervisor::Supervisor(Supervision supervision)
    : plan_(std::move(supervision)), pause_(plan_.first_pause) {}

Result<int> Supervisor::Run() {
  TRINE_RETURN_IF_ERROR(Prepare());
  TRINE_RETURN_IF_ERROR(Start());
  while (job_ >= 0 || start_at_) {
    Wait();
    TakeSignals();
    if (deadline_ && Clock::now() >= *deadline_) Escalate(/*told=*/false);
    Reap();
    if (start_at_ && Clock::now() >= *start_at_) StartAgain();
    if (is_service()) TendSocket();
  }
  return code_;
}

Status Supervisor::Prepare() {
  const sigset_t signals = Signals();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signals_ = Socket(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (signals_.fd() < 0) return BadInput(std::string("signalfd: ") + std::strerror(errno));
  return is_service() ? offer_.Open() : Status();
}

Status Supervisor::Start() {
  // Closed by exec; what comes out before is why there was none.
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return BadInput(std::string("pipe: ") + std::strerror(errno));
  const Socket out(ends[0]);
  Socket in(ends[1]);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) BecomeJob(parent, in.fd());
  int error = errno;
  in = Socket();
  if (child > 0) {
    ssize_t n = 0;
    do {
      n = read(out.fd(), &error, sizeof error);
    } while (n < 0 && errno == EINTR);
    if (n == 0) {
      job_ = child;
      started_ = Clock::now();
      StartJanitorOf(job_);
      return {};
    }
    waitpid(child, nullptr, 0);
  }
  return BadInput("cannot start " + plan_.command[0] + ": " + std::strerror(error));
}

// In the child, between fork and exec.
void Supervisor::BecomeJob(pid_t parent, int report) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // Open MPI 4.1 may hang after a SIGTERM while it starts
  if (getppid() != parent) _exit(1);
  if (is_service()) {
    // The terminal's Ctrl-C is for the supervisor, which makes it a drain.
    setpgid(0, 0);
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
  }
  const sigset_t signals = Signals();
  sigprocmask(SIG_UNBLOCK, &signals, nullptr);
  std::vector<char*> words;
  for (const std::string& word : plan_.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words[0], words.data());
  const int error = errno;
  static_cast<void>(!write(report, &error, sizeof error));
  _exit(1);
}

void Supervisor::Wait() {
  std::vector<pollfd> waiting = {{signals_.fd(), POLLIN, 0}};
  if (is_service()) {
    offer_.Await(waiting);
    stand_in_.Await(plan_.listener.fd(), stands_in(), waiting);
  }
  const bool has_deadlines = deadline_ || start_at_ || stand_in_.has_clients();
  poll(waiting.data(), waiting.size(), has_deadlines ? static_cast<int>(kTick.count()) : -1);
}

void Supervisor::TakeSignals() {
  signalfd_siginfo info{};
  while (read(signals_.fd(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGCHLD) continue;  // Reap looks at every turn
    if (info.ssi_signo == SIGPIPE) continue;  // nobody reads our lines any more
    const auto now = Clock::now();
    if (asked_ && now - *asked_ < kOneRequest) continue;
    asked_ = now;
    // What the terminal sends (SI_KERNEL) goes to its whole foreground group, mpirun among it.
    Escalate(/*told=*/!is_service() && info.ssi_code == SI_KERNEL);
  }
}

// Someone asks for the end, again, or has waited for long enough. `told`: mpirun knows already.
void Supervisor::Escalate(bool told) {
  start_at_.reset();
  switch (stage_) {
    case Stage::kRunning:
      if (offer_.is_taken()) return Enter(Stage::kDraining, SIGUSR1, plan_.drain_timeout);
      [[fallthrough]];
    case Stage::kDraining:
      return Enter(Stage::kTerminating, told ? 0 : SIGTERM, kTermination);
    case Stage::kTerminating:
    case Stage::kKilling:
      return Enter(Stage::kKilling, SIGKILL, kTermination);
  }
}

void Supervisor::Enter(Stage stage, int signal, milliseconds patience) {
  stage_ = stage;
  deadline_ = Clock::now() + patience;
  if (job_ >= 0) kill(job_, signal);
}

void Supervisor::Reap() {
  // Any child: as the first process of a container this one gets other processes' orphans.
  int status = 0;
  for (pid_t child = 0; (child = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (child != job_) continue;
    job_ = -1;
    JobEnded(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
  }
}

void Supervisor::JobEnded(int code) {
  code_ = code;
  offer_.TakeBack();
  const bool failed = code != 0 && code != kUsageCode;
  if (!plan_.restart || !failed || stage_ != Stage::kRunning) return;
  const auto now = Clock::now();
  if (now - started_ >= plan_.settled) pause_ = plan_.first_pause;
  start_at_ = now + pause_;
  std::fprintf(stderr, "trine: the job ended with status %d; it starts again in %.1f s\n", code,
               static_cast<double>(pause_.count()) / 1000);
  pause_ = std::min(2 * pause_, plan_.longest_pause);
}

void Supervisor::StartAgain() {
  start_at_.reset();
  const Status status = Start();
  if (status.ok()) return;
  std::fprintf(stderr, "trine: %s\n", status.message().c_str());
  started_ = Clock::now();
  JobEnded(/*code=*/1);
}

// The socket is always someone's: the job's, or the stand-in's.
void Supervisor::TendSocket() {
  offer_.Work(plan_.listener.fd());
  stand_in_.Work(plan_.listener.fd(), stands_in(),
                 stage_ == Stage::kRunning ? "Loading model" : "Shutting down");
}

}  // namespace trine
