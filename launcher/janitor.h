// What Open MPI leaves in /tmp and /dev/shm when its mpirun is killed is removed by a child of the
// first rank of a host, which sleeps until mpirun has ended, however it ends, and then ends too.
#pragma once

namespace trine {

// To be called by a rank before it has threads, and before MPI_Init. Where the kernel cannot wait for
// mpirun (Linux before 5.3) nothing is done.
void StartJanitor();

}  // namespace trine
