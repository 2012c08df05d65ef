// Every malformed file of make_malformed.py is refused with the exact message that names its
// defect: alone and by two ranks (this program under mpirun), within a second, with hardly more
// memory than the good file takes.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>

#include "comm/mpi.h"
#include "src/engine/session.h"
#include "tests/fixtures.h"
#include "tests/mpi/mpi_main.h"

namespace trine {
namespace {

std::string malformed_folder;

int64_t PeakKilobytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// A value that only one rank reads is reported with that rank's number before it.
std::string WithoutRank(const std::string& message) {
  const size_t colon = message.find(": ");
  return message.starts_with("rank ") ? message.substr(colon + 2) : message;
}

TEST(Malformed, EveryFile_IsRefusedWithItsMessage) {
  const auto control = test_job->MakeControl();
  const auto comm = test_job->MakeShmCommunicator();
  const nlohmann::json manifest = ReadJson(malformed_folder + "/manifest.json");
  ASSERT_GE(manifest.size(), 400u);
  int64_t good_peak = 0;
  for (const auto& entry : manifest) {
    SessionOptions options;
    options.model = malformed_folder + "/" + entry["file"].get<std::string>();
    const auto error = entry["error"].get<std::string>();
    const auto start = std::chrono::steady_clock::now();
    const auto session = Session::Open(options, *control, *comm, {});
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    const std::string named =
        malformed_folder + "/" + entry.value("names", entry["file"].get<std::string>());
    EXPECT_EQ(WithoutRank(session.status().message()), error.empty() ? "" : named + error);
    EXPECT_LT(seconds.count(), 1.0) << options.model;
    if (error.empty()) good_peak = PeakKilobytes();
    EXPECT_LT(PeakKilobytes(), good_peak + 64 * 1024) << options.model;
  }
}

}  // namespace
}  // namespace trine

int main(int argc, char** argv) {
  trine::malformed_folder = argv[argc - 1];
  return trine::RunMpiTests(argc - 1, argv);
}
