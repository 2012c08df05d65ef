#include "launcher/janitor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace trine {
namespace {

namespace fs = std::filesystem;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The session's folder, and segments with the job's number in their names, such as
// /dev/shm/vader_segment.HOST.UID.JOB.RANK.
void RemoveLeftOvers() {
  std::error_code ignored;
  const fs::path session = Environment("PMIX_SERVER_TMPDIR");
  if (session.filename().string().starts_with("pid.")) fs::remove_all(session, ignored);
  const std::string job = Environment("PMIX_NAMESPACE");
  char* end = nullptr;
  const uint64_t number = std::strtoull(job.c_str(), &end, 10);
  if (job.empty() || *end != '\0') return;
  char part[32];
  std::snprintf(part, sizeof part, ".%llx.", static_cast<unsigned long long>(number));
  const std::string chosen = Environment("OMPI_MCA_btl_vader_backing_directory");
  const fs::path folder = chosen.empty() ? "/dev/shm" : chosen;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.find(part) != std::string::npos) fs::remove(entry.path(), ignored);
  }
}

// For mpirun to end by itself, once it has been asked to.
constexpr int kGraceMs = 5000;

// Until mpirun has ended; ends it where `requests` has a byte for that.
void AwaitEnd(int mpirun, int requests) {
  pollfd watched[] = {{mpirun, POLLIN, 0}, {requests, POLLIN, 0}};
  for (int patience = -1;;) {
    const int ready = poll(watched, 2, patience);
    if (ready > 0 && watched[0].revents != 0) return;
    if (ready == 0) syscall(SYS_pidfd_send_signal, mpirun, SIGKILL, nullptr, 0);
    if (ready <= 0 || watched[1].revents == 0) continue;
    char byte = 0;
    const bool asked = read(requests, &byte, 1) == 1;
    if (asked) syscall(SYS_pidfd_send_signal, mpirun, SIGTERM, nullptr, 0);
    if (asked) patience = kGraceMs;
    watched[1].fd = -1;  // no more of it
  }
}

}  // namespace

int StartJanitor() {
  if (Environment("OMPI_COMM_WORLD_LOCAL_RANK") != "0") return -1;
  const int mpirun = static_cast<int>(syscall(SYS_pidfd_open, getppid(), 0));
  int requests[2];
  if (mpirun < 0 || pipe2(requests, O_CLOEXEC) != 0) return -1;
  const pid_t child = fork();
  if (child != 0) {
    close(mpirun);
    close(requests[0]);
    return requests[1];
  }
  setsid();
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) std::signal(signal, SIG_IGN);
  // mpirun waits for whoever has its pipes open.
  for (int fd = 0; fd < 1024; ++fd) {
    if (fd != mpirun && fd != requests[0]) close(fd);
  }
  AwaitEnd(mpirun, requests[0]);
  RemoveLeftOvers();
  _exit(0);
}

}  // namespace trine
