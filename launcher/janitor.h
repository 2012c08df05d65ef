// What Open MPI leaves in /tmp and /dev/shm when its mpirun is killed is removed by a child of the
// first rank of a host, which sleeps until mpirun has ended, however it ends, and then ends too.
// Where the hosts have lost each other mpirun would wait for ever: on request the child ends it.
#pragma once

namespace trine {

// To be called by a rank before it has threads, and before MPI_Init. Where the kernel cannot wait
// for mpirun (Linux before 5.3) nothing is done. Returns a descriptor to which a byte is to be
// written when mpirun is to end soon; -1: this rank has no such child.
int StartJanitor();

}  // namespace trine
