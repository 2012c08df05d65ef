// The backends between processes. Run under mpirun with any number of ranks on one host.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>

#include "comm/mpi.h"
#include "tests/communicator_cases.h"
#include "tests/mpi/mpi_main.h"

namespace trine {
namespace {

CommunicatorBackend Shm() {
  return {"Shm", [](const RankBody& body) {
            body(*test_job->MakeShmCommunicator(), *test_job->MakeControl());
          }};
}

CommunicatorBackend Mpi() {
  return {"Mpi", [](const RankBody& body) {
            body(*test_job->MakeMpiCommunicator(), *test_job->MakeControl());
          }};
}

INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorContract, testing::Values(Shm(), Mpi()),
                         BackendName);

TEST(MpiJob, World_RanksOfOneHost_AgreeWithTheLauncher) {
  EXPECT_TRUE(LaunchedByMpi());
  EXPECT_TRUE(test_job->one_host());
  const World world = test_job->world();
  EXPECT_EQ(std::to_string(world.rank), std::getenv("OMPI_COMM_WORLD_RANK"));
  EXPECT_EQ(std::to_string(world.size), std::getenv("OMPI_COMM_WORLD_SIZE"));
  EXPECT_EQ(std::to_string(world.local_rank), std::getenv("OMPI_COMM_WORLD_LOCAL_RANK"));
  EXPECT_EQ(std::to_string(world.local_size), std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE"));
  EXPECT_EQ(test_job->MakeShmCommunicator()->name(), "shm");
  EXPECT_EQ(test_job->MakeMpiCommunicator()->name(), "mpi");
}

// CPU time of all threads of this process while `body` runs.
template <typename Body>
double CpuSeconds(const Body& body) {
  const auto used = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double before = used();
  body();
  return used() - before;
}

// The least of three measurements: what other programs do to this one only adds.
template <typename Body>
double LeastCpuSeconds(const Body& body) {
  return std::min({CpuSeconds(body), CpuSeconds(body), CpuSeconds(body)});
}

// What 2,000 sleeps of 500 us cost on this machine: 1 % of a core on bare metal, 6 % in some
// virtual machines.
double CpuSecondsOfSleepingOneSecond() {
  return 10 * CpuSeconds([] {
           for (int i = 0; i < 200; ++i)
             std::this_thread::sleep_for(std::chrono::microseconds(500));
         });
}

TEST(MpiControl, Broadcast_WorkerWaitsOneSecond_CostsLittleMoreThanSleeping) {
  const double sleeping = CpuSecondsOfSleepingOneSecond();
  const auto control = test_job->MakeControl();
  Bytes message;
  const double waiting = LeastCpuSeconds([&] {
    control->Barrier();
    if (control->world().rank == 0) std::this_thread::sleep_for(std::chrono::seconds(1));
    control->Broadcast(message, 0);
  });
  EXPECT_LT(waiting, sleeping + 0.05);
}

// What a rank of a server without requests does.
TEST(MpiControl, Broadcast_IdleWorker_UnderTwoPercentOfACore) {
  const auto control = test_job->MakeControl();
  Bytes message;
  const double waiting = CpuSeconds([&] {
    control->Barrier();
    if (control->world().rank == 0) std::this_thread::sleep_for(std::chrono::seconds(6));
    control->Broadcast(message, 0);
  });
  const auto* bytes = reinterpret_cast<const std::byte*>(&waiting);
  for (const Bytes& theirs : control->AllGather(Bytes(bytes, bytes + sizeof waiting))) {
    double seconds = 0;
    std::memcpy(&seconds, theirs.data(), sizeof seconds);
    EXPECT_LT(seconds, 0.02 * 6);
    if (control->world().rank == 0) std::printf("  %.2f %% of a core\n", 100 * seconds / 6);
  }
}

TEST(MpiControl, Barrier_RanksWaitOneSecond_CostsLittleMoreThanSleeping) {
  const double sleeping = CpuSecondsOfSleepingOneSecond();
  const auto control = test_job->MakeControl();
  const double waiting = LeastCpuSeconds([&] {
    control->Barrier();
    if (control->world().rank == 0) std::this_thread::sleep_for(std::chrono::seconds(1));
    control->Barrier();
  });
  EXPECT_LT(waiting, sleeping + 0.05);
}

}  // namespace
}  // namespace trine

int main(int argc, char** argv) {
  return trine::RunMpiTests(argc, argv);
}
