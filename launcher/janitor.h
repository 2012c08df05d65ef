// What Open MPI leaves in /tmp and /dev/shm when its mpirun is killed is removed by a process that
// sleeps until mpirun has ended, however it ends, and then ends too. Where the hosts have lost each
// other mpirun would wait for ever: on request that process ends it. Where the kernel cannot wait for
// mpirun (Linux before 5.3) nothing is done.
#pragma once

#include <sys/types.h>

namespace trine {

// To be called by every rank before it has threads, and before MPI_Init; the first of a host starts
// the process. It removes all of the job. Returns a descriptor to which a byte is to be written when
// mpirun is to end soon; -1: this rank has no such process.
int StartJanitor();

// To be called by the parent of an mpirun that has just been started. Removes the session's folder,
// which a rank cannot do if mpirun is killed before there is one. The process is a child of this
// one, which must not have threads.
void StartJanitorOf(pid_t mpirun);

}  // namespace trine
