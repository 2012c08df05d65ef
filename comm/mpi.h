// Ranks as MPI processes. Nothing here shows an MPI type; mpi.cc holds the calls.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/control.h"
#include "comm/world.h"

namespace trine {

// Whether a launcher (mpirun, srun) started this process as one rank of a job. Reads the
// environment only, so it may be asked before anything else; without a launcher MPI is not touched.
bool LaunchedByMpi();

// MPI for the lifetime of the object: initialised with MPI_THREAD_FUNNELED on the calling thread,
// finalised by the destructor on the same thread. The process dies with its parent
// (PR_SET_PDEATHSIG), so no rank outlives its mpirun. A failing MPI call ends the job with its
// reason.
class MpiJob {
 public:
  MpiJob(int* argc, char*** argv);
  ~MpiJob();
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;

  World world() const;
  bool one_host() const;  // all ranks share this host's memory

  std::unique_ptr<ControlChannel> MakeControl() const;

  // Data plane over MPI messages: works everywhere.
  std::unique_ptr<Communicator> MakeMpiCommunicator() const;

  // Data plane over an MPI-3 shared window. Collective; requires one_host().
  std::unique_ptr<Communicator> MakeShmCommunicator() const;

 private:
  World world_;
};

}  // namespace trine
