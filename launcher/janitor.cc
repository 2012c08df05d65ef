#include "launcher/janitor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

namespace trine {
namespace {

namespace fs = std::filesystem;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Where Open MPI puts its folders, see orte_tmpdir_base in ompi_info.
fs::path TemporaryFolder() {
  for (const char* name : {"OMPI_MCA_orte_tmpdir_base", "TMPDIR", "TEMP", "TMP"}) {
    if (const std::string value = Environment(name); !value.empty()) return value;
  }
  return "/tmp";
}

// The folder of an mpirun of this host and user: ompi.HOST.UID/pid.PID.
void RemoveSession(pid_t mpirun) {
  std::error_code ignored;
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const std::string first = "ompi." + std::string(host, std::strcspn(host, "."));
  const std::string last = "." + std::to_string(geteuid());
  for (const fs::directory_entry& entry : fs::directory_iterator(TemporaryFolder(), ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(first) || !name.ends_with(last)) continue;
    fs::remove_all(entry.path() / ("pid." + std::to_string(mpirun)), ignored);
  }
}

// As a rank knows them: the session's folder, and segments with the job's number in their names,
// such as /dev/shm/vader_segment.HOST.UID.JOB.RANK.
void RemoveJob(const fs::path& session) {
  std::error_code ignored;
  if (!session.empty()) fs::remove_all(session, ignored);
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

// Calls `sweep` in a new process once mpirun has ended, or here if it has by now. Returns where that
// process takes the request to end mpirun; -1: there is none.
template <typename Sweep>
int AfterEnd(pid_t mpirun, const Sweep& sweep) {
  const int handle = static_cast<int>(syscall(SYS_pidfd_open, mpirun, 0));
  if (handle < 0 && errno == ESRCH) sweep();
  int requests[2];
  if (handle < 0 || pipe2(requests, O_CLOEXEC) != 0) return -1;
  if (fork() != 0) {
    close(handle);
    close(requests[0]);
    return requests[1];
  }
  setsid();
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) std::signal(signal, SIG_IGN);
  // mpirun waits for whoever has its pipes open.
  for (int fd = 0; fd < 1024; ++fd) {
    if (fd != handle && fd != requests[0]) close(fd);
  }
  AwaitEnd(handle, requests[0]);
  sweep();
  _exit(0);
}

}  // namespace

int StartJanitor() {
  if (Environment("OMPI_COMM_WORLD_LOCAL_RANK") != "0") return -1;
  fs::path session = Environment("PMIX_SERVER_TMPDIR");
  const std::string name = session.filename().string();
  pid_t mpirun = getppid();
  // Its name has the number of mpirun, which the parent's is not if mpirun has ended already.
  if (name.starts_with("pid.")) {
    mpirun = std::atoi(name.c_str() + 4);
  } else {
    session.clear();
  }
  return mpirun > 0 ? AfterEnd(mpirun, [&] { RemoveJob(session); }) : -1;
}

void StartJanitorOf(pid_t mpirun) {
  const int requests = AfterEnd(mpirun, [&] { RemoveSession(mpirun); });
  if (requests >= 0) close(requests);
}

}  // namespace trine
