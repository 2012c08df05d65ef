// The recurrent state of every sequence slot. Slots mean the same on every rank; each rank stores
// its own heads' share, and none of it ever travels.
#pragma once

#include <vector>

#include "kernels/backend.h"

namespace trine {

class RecurrentState {
 public:
  // Memory for `sequences` slots of every layer, and `snapshots` after them that have no log of
  // drafts; touched when first used.
  RecurrentState(Backend& backend, const DeltaLayout& layout, int layers, int64_t sequences,
                 int64_t snapshots);

  // The state of one slot to another, in every layer. Not the log: it is not of the state.
  void Copy(Backend& backend, int64_t from, int64_t to) const;

  std::span<const DeltaStates> layers() const { return layers_; }
  int64_t bytes() const { return memory_.bytes(); }

 private:
  Buffer memory_;
  std::vector<DeltaStates> layers_;
};

}  // namespace trine
