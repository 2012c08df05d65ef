#include "comm/watchdog.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "comm/socket.h"

namespace trine {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kTick{50}, kBeat{200};
constexpr milliseconds kLongestSilence{10000};
constexpr milliseconds kConnect{10000};
// Several beats are missing.
constexpr milliseconds kLongPause{800};
// For the reason to arrive, when this process ends because another one did.
constexpr milliseconds kGrace{300};
// For all ranks to tell where they are, once one has stood still for too long.
constexpr milliseconds kCollect{500};

// How long a phase may go on without a stamp, in terms of a step's patience.
milliseconds DeadlineOf(Phase phase, milliseconds step) {
  switch (phase) {
    case Phase::kStartUp:
      return 4 * step;
    case Phase::kFabric:
      return 2 * step;
    case Phase::kLoad:
      return 10 * step;
    case Phase::kPrefill:
    case Phase::kDecode:
    case Phase::kIdle:
    case Phase::kShutdown:
      return step;
  }
  return step;
}

using Token = std::array<unsigned char, 16>;

enum class News : int32_t { kFine, kDone, kStandsStill, kVerdict };
enum class Blame : int32_t { kDied, kSilent, kStoodStill, kAllWait };

// What travels, as it lies in memory: the hosts of a job are alike.
struct Message {
  Token token{};
  int32_t rank = 0;
  News news = News::kFine;
  Standing standing;
  Blame blame = Blame::kDied;  // of a verdict
  int32_t culprit = 0;
  Standing culprits_standing;
};

struct Peer {
  int rank = -1;  // unknown before its first message
  Socket socket;
  Message partial;  // being received
  size_t received = 0;
  Clock::time_point heard = Clock::now();
  Standing standing;
  bool done = false;    // it said so: its end is no death
  bool closed = false;  // nothing comes any more
};

std::string SecondsText(milliseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(time.count()) / 1000);
  return text;
}

std::string RankText(int rank) {
  return "rank " + std::to_string(rank);
}

std::string BlameText(const Message& verdict) {
  const Standing& its = verdict.culprits_standing;
  const std::string who = RankText(verdict.culprit), where = PlaceText(its.phase, its.step);
  switch (verdict.blame) {
    case Blame::kDied:
      return who + " died, last seen in " + where;
    case Blame::kSilent:
      return who + " has not been heard of for " + SecondsText(its.still) +
             " (stopped, or cut off), last seen in " + where;
    case Blame::kStoodStill:
      return who + " has stood still for " + SecondsText(its.still) + " in " + where;
    case Blame::kAllWait:
      return "every rank waits for another; " + who + " for " + SecondsText(its.still) + " in " +
             where;
  }
  return who;
}

// mpirun reads no more from its ranks once one of them has died, so the last words go to its own
// standard error: to its very descriptor where the kernel lets us have it, else, for a pipe or a
// terminal, to the same end of it.
Socket LastWords() {
  const pid_t parent = getppid();
  const Socket process(static_cast<int>(syscall(SYS_pidfd_open, parent, 0)));
  Socket theirs(static_cast<int>(syscall(SYS_pidfd_getfd, process.fd(), STDERR_FILENO, 0)));
  if (theirs.fd() >= 0) return theirs;
  const std::string path = "/proc/" + std::to_string(parent) + "/fd/2";
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode))) {
    theirs = Socket(open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  }
  return theirs.fd() >= 0 ? std::move(theirs) : Socket(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
}

}  // namespace

class Watchdog::Thread {
 public:
  explicit Thread(int launcher) : launcher_(launcher) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    signals_ = Socket(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    wake_ = Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    thread_ = std::thread([this] { Run(); });
  }

  ~Thread() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    eventfd_write(wake_.fd(), 1);
    thread_.join();
  }

  // From now on these are watched. A listener takes those who show the token.
  void Watch(const World& world, const Token& token, Socket listener, std::vector<Peer> peers,
             const Patience& patience) {
    const std::lock_guard lock(mutex_);
    world_ = world;
    token_ = token;
    listener_ = std::move(listener);
    for (Peer& peer : peers) peers_.push_back(std::move(peer));
    for (Peer& peer : peers_) Send(peer, Own(News::kFine));  // who this is, before it can die
    patience_ = patience;
    eventfd_write(wake_.fd(), 1);
  }

  void Leave() {
    const std::lock_guard lock(mutex_);
    for (Peer& peer : peers_) Send(peer, Own(News::kDone));
  }

 private:
  void Run() {
    for (;;) {
      Poll();
      const std::lock_guard lock(mutex_);
      if (stop_) return;
      const auto now = Clock::now();
      if (now > awake_ + kLongPause) EndIfLeftBehind(now - awake_);
      awake_ = now;
      TakeSignals(now);
      Accept();
      for (size_t i = 0; i < peers_.size(); ++i) Receive(peers_[i]);
      if (now >= next_beat_) {
        next_beat_ = now + kBeat;
        for (Peer& peer : peers_) Send(peer, Own(News::kFine));
      }
      LookAtPeers(now);
      LookAtOneself(now);
    }
  }

  // This process itself was stopped. Where the others have gone on without it, it is to blame and
  // not they, whatever it finds of them now; else it goes on as well.
  void EndIfLeftBehind(Clock::duration pause) {
    for (const Peer& peer : peers_) {
      pollfd ended = {peer.socket.fd(), POLLRDHUP, 0};
      const bool is_open = peer.closed || poll(&ended, 1, 0) == 0;
      if (is_open || peer.done) continue;
      End("it was stopped for " + SecondsText(std::chrono::duration_cast<milliseconds>(pause)) +
          " itself");
    }
    for (Peer& peer : peers_) peer.heard = Clock::now();
    OwnProgress().Move();
  }

  void Poll() {
    std::vector<pollfd> waiting = {{wake_.fd(), POLLIN, 0}, {signals_.fd(), POLLIN, 0}};
    {
      const std::lock_guard lock(mutex_);
      if (listener_.fd() >= 0) waiting.push_back({listener_.fd(), POLLIN, 0});
      for (const Peer& peer : peers_) {
        if (!peer.closed) waiting.push_back({peer.socket.fd(), POLLIN, 0});
      }
    }
    poll(waiting.data(), waiting.size(), static_cast<int>(kTick.count()));
    eventfd_t ignored = 0;
    eventfd_read(wake_.fd(), &ignored);
  }

  void TakeSignals(Clock::time_point now) {
    signalfd_siginfo info{};
    if (read(signals_.fd(), &info, sizeof info) == sizeof info && !terminated_) terminated_ = now;
    if (!terminated_ || now < *terminated_ + kGrace) return;
    // It may be mpirun that tells the ranks one after another what this one was about to find out.
    for (const Peer& peer : peers_) {
      if (peer.rank >= 0 && !peer.done && !peer.closed && now > peer.heard + kLongPause) {
        Blamed(Blame::kSilent, peer.rank, Silent(peer, now));
      }
    }
    // Whoever sent it knows why: no word.
    _exit(128 + SIGTERM);
  }

  void Accept() {
    if (listener_.fd() < 0) return;
    for (;;) {
      Socket socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket.fd() < 0) return;
      Peer peer;
      peer.socket = std::move(socket);
      peers_.push_back(std::move(peer));
    }
  }

  void Receive(Peer& peer) {
    while (!peer.closed) {
      auto* to = reinterpret_cast<char*>(&peer.partial) + peer.received;
      const ssize_t n = recv(peer.socket.fd(), to, sizeof(Message) - peer.received, MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
      if (n <= 0) {
        peer.closed = true;
        if (peer.rank >= 0 && !peer.done) Ended(peer);
        return;
      }
      peer.received += static_cast<size_t>(n);
      if (peer.received < sizeof(Message)) continue;
      peer.received = 0;
      if (peer.partial.token != token_) {
        peer.closed = true;  // a stranger
        return;
      }
      Take(peer, peer.partial);
    }
  }

  // One that had been silent was stopped or cut off before it ended.
  [[noreturn]] void Ended(const Peer& peer) {
    const auto now = Clock::now();
    if (now < peer.heard + kLongPause) Blamed(Blame::kDied, peer.rank, peer.standing);
    Blamed(Blame::kSilent, peer.rank, Silent(peer, now));
  }

  void Take(Peer& peer, const Message& message) {
    peer.rank = message.rank;
    peer.heard = Clock::now();
    peer.standing = message.standing;
    if (message.news == News::kDone) peer.done = true;
    if (message.news == News::kVerdict) End(BlameText(message));
    if (message.news == News::kStandsStill && !collect_until_) {
      collect_until_ = Clock::now() + kCollect;
    }
  }

  // A silent peer stands still as far as anyone knows.
  static Standing Silent(const Peer& peer, Clock::time_point now) {
    Standing standing = peer.standing;
    standing.still = std::chrono::duration_cast<milliseconds>(now - peer.heard);
    return standing;
  }

  static Peer Stranger() {
    Peer peer;
    peer.closed = true;
    return peer;
  }

  void LookAtPeers(Clock::time_point now) {
    const milliseconds step = patience_.step;
    if (step.count() == 0) return;
    const milliseconds longest = std::min(step, kLongestSilence);
    for (Peer& peer : peers_) {
      const auto silent = std::chrono::duration_cast<milliseconds>(now - peer.heard);
      if (peer.rank < 0 && silent > kLongestSilence) peer = Stranger();
      if (peer.done || peer.closed || peer.rank < 0 || silent < longest) continue;
      Blamed(Blame::kSilent, peer.rank, Silent(peer, now));
    }
  }

  void LookAtOneself(Clock::time_point now) {
    const Standing mine = OwnProgress().standing();
    const milliseconds deadline = DeadlineOf(mine.phase, patience_.step);
    const bool stands = deadline.count() > 0 && mine.still > deadline;
    if (stands && !collect_until_) {
      // Rank 0 hears of it and decides; if it does not, this rank ends alone.
      collect_until_ = now + (world_.rank == 0 ? kCollect : 3 * kCollect);
      if (world_.rank != 0) {
        for (Peer& peer : peers_) Send(peer, Own(News::kStandsStill));
      }
    }
    if (!collect_until_ || now < *collect_until_) return;
    JudgeStandstill(mine);
  }

  // To blame is who waits for nobody: of those who stood still for longest.
  void JudgeStandstill(const Standing& mine) {
    Blame blame = mine.waits_for == kNobody ? Blame::kStoodStill : Blame::kAllWait;
    int culprit = world_.rank;
    Standing worst = mine;
    for (const Peer& peer : peers_) {
      if (peer.done || peer.standing.waits_for != kNobody) continue;
      if (blame == Blame::kStoodStill && peer.standing.still < worst.still) continue;
      blame = Blame::kStoodStill;
      culprit = peer.rank;
      worst = peer.standing;
    }
    Blamed(blame, culprit, worst);
  }

  [[noreturn]] void Blamed(Blame blame, int culprit, const Standing& standing) {
    Message verdict = Own(News::kVerdict);
    verdict.blame = blame;
    verdict.culprit = culprit;
    verdict.culprits_standing = standing;
    if (world_.rank == 0) {
      for (Peer& peer : peers_) Send(peer, verdict);
    }
    if (blame == Blame::kSilent) static_cast<void>(!write(launcher_, "", 1));
    End(BlameText(verdict));
  }

  Message Own(News news) const {
    Message message;
    message.token = token_;
    message.rank = world_.rank;
    message.news = news;
    message.standing = OwnProgress().standing();
    return message;
  }

  // A peer that does not read is soon silent too: nothing waits for it.
  static void Send(Peer& peer, const Message& message) {
    if (peer.closed) return;
    static_cast<void>(
        !send(peer.socket.fd(), &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL));
  }

  [[noreturn]] void End(const std::string& reason) {
    const Standing mine = OwnProgress().standing();
    std::string line = "[rank " + std::to_string(world_.rank) + "/" + std::to_string(world_.size) +
                       "] in " + PlaceText(mine.phase, mine.step) + " for " +
                       SecondsText(mine.still);
    if (mine.waits_for >= 0) line += ", waiting for " + RankText(mine.waits_for);
    if (mine.waits_for == kSomeRank) line += ", waiting for others";
    line += ": " + reason + "\n";
    static_cast<void>(!write(last_words_.fd(), line.data(), line.size()));
    _exit(1);
  }

  std::mutex mutex_;  // of all below; the engine's thread holds it in Watch and Leave only
  World world_;
  Token token_{};
  Patience patience_;
  Socket wake_, signals_, listener_;
  const Socket last_words_ = LastWords();
  const int launcher_;
  std::vector<Peer> peers_;  // of rank 0: all others; of others: rank 0
  bool stop_ = false;
  Clock::time_point next_beat_{}, awake_ = Clock::now();
  std::optional<Clock::time_point> terminated_, collect_until_;
  std::thread thread_;
};

namespace {

// Where rank 0 can be reached, for all hosts or for its own.
std::vector<sockaddr_in> Addresses(bool one_host, in_port_t port) {
  std::vector<sockaddr_in> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* it = list; it != nullptr; it = it->ifa_next) {
    if (it->ifa_addr == nullptr || it->ifa_addr->sa_family != AF_INET) continue;
    if (((it->ifa_flags & IFF_LOOPBACK) != 0) != one_host || (it->ifa_flags & IFF_UP) == 0)
      continue;
    sockaddr_in address{};
    std::memcpy(&address, it->ifa_addr, sizeof address);
    address.sin_port = port;
    addresses.push_back(address);
  }
  freeifaddrs(list);
  return addresses;
}

// How the others find rank 0.
struct Card {
  Token token{};
  int32_t count = 0;
  std::array<sockaddr_in, 16> addresses{};
};

Status Listen(bool one_host, Socket* listener, Card* card) {
  const auto failed = [](const char* call) {
    return BadInput(std::string("watchdog: ") + call + ": " + std::strerror(errno));
  };
  *listener = Socket(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(one_host ? INADDR_LOOPBACK : INADDR_ANY);
  socklen_t size = sizeof any;
  auto* address = reinterpret_cast<sockaddr*>(&any);
  if (listener->fd() < 0) return failed("socket");
  if (bind(listener->fd(), address, size) != 0) return failed("bind");
  if (listen(listener->fd(), SOMAXCONN) != 0) return failed("listen");
  if (getsockname(listener->fd(), address, &size) != 0) return failed("getsockname");
  std::random_device random;
  for (unsigned char& byte : card->token) byte = static_cast<unsigned char>(random());
  for (const sockaddr_in& one : Addresses(one_host, any.sin_port)) {
    if (card->count < std::ssize(card->addresses))
      card->addresses[static_cast<size_t>(card->count++)] = one;
  }
  return {};
}

bool Connect(const sockaddr_in& address, Socket* made) {
  Socket attempt(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  if (attempt.fd() < 0) return false;
  if (connect(attempt.fd(), to, sizeof address) != 0 && errno != EINPROGRESS) return false;
  pollfd writable = {attempt.fd(), POLLOUT, 0};
  if (poll(&writable, 1, static_cast<int>(kConnect.count())) != 1) return false;
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(attempt.fd(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0)
    return false;
  const int one = 1;
  setsockopt(attempt.fd(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  *made = std::move(attempt);
  return true;
}

}  // namespace

Watchdog::Watchdog(int launcher) : thread_(std::make_unique<Thread>(launcher)) {}
Watchdog::~Watchdog() = default;

Status Watchdog::Join(ControlChannel& control, bool one_host, const Patience& patience) {
  const World& world = control.world();
  Socket listener;
  Card card;
  Status status;
  if (world.rank == 0) status = Listen(one_host, &listener, &card);
  Bytes message(sizeof card);
  std::memcpy(message.data(), &card, sizeof card);
  control.Broadcast(message, /*root=*/0);
  std::memcpy(&card, message.data(), sizeof card);

  std::vector<Peer> peers;
  if (world.rank != 0) {
    Peer first;
    first.rank = 0;
    for (int32_t i = 0; i < card.count && first.socket.fd() < 0; ++i) {
      Connect(card.addresses[static_cast<size_t>(i)], &first.socket);
    }
    if (first.socket.fd() < 0) {
      status =
          BadInput("watchdog: cannot connect to rank 0 at any of its " +
                   std::to_string(card.count) + " addresses; is a firewall between the hosts?");
    } else {
      peers.push_back(std::move(first));
    }
  }
  thread_->Watch(world, card.token, std::move(listener), std::move(peers), patience);
  return status;
}

void Watchdog::Leave() {
  thread_->Leave();
}

}  // namespace trine
