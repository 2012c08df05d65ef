// World: which rank this is. A value made once in the launcher and passed on; never global.
#pragma once

namespace trine {

struct World {
  int rank = 0;        // 0 <= rank < size
  int size = 1;        // ranks in the job
  int local_rank = 0;  // index among the ranks of this host
  int local_size = 1;  // ranks on this host
};

}  // namespace trine
