#include "comm/handover.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <utility>

namespace trine {
namespace {

constexpr char kVariable[] = "TRINE_LISTENER";  // holds the abstract name
constexpr time_t kTakeSeconds = 10;

struct Address {
  sockaddr_un value{};
  socklen_t size = 0;
};

// An abstract name begins with a zero byte and leaves no file.
Address Abstract(const std::string& name) {
  Address address;
  address.value.sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof address.value.sun_path - 1);
  std::memcpy(address.value.sun_path + 1, name.data(), length);
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

Status Failed(const char* call) {
  return BadInput(std::string("handing the listening socket over: ") + call + ": " +
                  std::strerror(errno));
}

bool IsOwnUser(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

// One byte and, with it, one descriptor.
struct Parcel {
  Parcel() {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
};

bool SendDescriptor(int to, int fd) {
  Parcel parcel;
  cmsghdr* header = CMSG_FIRSTHDR(&parcel.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return sendmsg(to, &parcel.message, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

Socket ReceiveDescriptor(int from) {
  Parcel parcel;
  ssize_t n = -1;
  do {
    n = recvmsg(from, &parcel.message, MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n != 1) return Socket();
  const cmsghdr* header = CMSG_FIRSTHDR(&parcel.message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return Socket();
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return Socket(fd);
}

}  // namespace

bool Lease::IsOffered() {
  return std::getenv(kVariable) != nullptr;
}

Status Lease::Take() {
  const char* name = std::getenv(kVariable);
  if (name == nullptr) return BadInput("no supervisor offers a listening socket");
  const Address address = Abstract(name);
  Socket connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connection.fd() < 0) return Failed("socket");
  const timeval patience = {kTakeSeconds, 0};
  setsockopt(connection.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(connection.fd(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  const auto* to = reinterpret_cast<const sockaddr*>(&address.value);
  if (connect(connection.fd(), to, address.size) != 0) return Failed("connect");
  Socket listener = ReceiveDescriptor(connection.fd());
  if (listener.fd() < 0) return Failed("recvmsg");
  connection_ = std::move(connection);
  listener_ = std::move(listener);
  return {};
}

Status Lease::SayReady() {
  const char byte = 1;
  if (send(connection_.fd(), &byte, 1, MSG_NOSIGNAL) != 1) return Failed("send");
  return {};
}

void Lease::Return() {
  connection_ = Socket();
  listener_ = Socket();
}

Status Offer::Open() {
  std::random_device random;
  char name[48];
  std::snprintf(name, sizeof name, "trine-%08x%08x%08x%08x", random(), random(), random(),
                random());
  const Address address = Abstract(name);
  door_ = Socket(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (door_.fd() < 0) return Failed("socket");
  const auto* at = reinterpret_cast<const sockaddr*>(&address.value);
  if (bind(door_.fd(), at, address.size) != 0) return Failed("bind");
  if (listen(door_.fd(), SOMAXCONN) != 0) return Failed("listen");
  if (setenv(kVariable, name, /*overwrite=*/1) != 0) return Failed("setenv");
  return {};
}

void Offer::Await(std::vector<pollfd>& waiting) const {
  waiting.push_back({door_.fd(), POLLIN, 0});
  waiting.push_back({holder_.fd(), POLLIN, 0});  // poll passes over -1
}

void Offer::Work(int listener) {
  Socket caller(accept4(door_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (caller.fd() >= 0 && IsOwnUser(caller.fd()) && SendDescriptor(caller.fd(), listener)) {
    ready_ = false;
    holder_ = std::move(caller);
  }
  if (holder_.fd() < 0) return;
  char byte = 0;
  const ssize_t n = recv(holder_.fd(), &byte, 1, MSG_DONTWAIT);
  if (n == 1) ready_ = true;
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) TakeBack();
}

void Offer::TakeBack() {
  ready_ = false;
  holder_ = Socket();
}

}  // namespace trine
