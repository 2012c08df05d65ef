// PieceList: byte strings by id, in one block of memory; PieceIndex: from bytes back to the id.
// They know no vocabulary format and no merge.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/hash.h"

namespace trine {

class PieceList {
 public:
  int64_t size() const { return static_cast<int64_t>(begins_.size()) - 1; }

  // Valid until the next Append. `id` must be in range.
  std::string_view operator[](int64_t id) const {
    const int64_t* begin = begins_.data() + id;
    return {bytes_.data() + begin[0], static_cast<size_t>(begin[1] - begin[0])};
  }

  void Append(std::string_view piece) {
    bytes_ += piece;
    begins_.push_back(static_cast<int64_t>(bytes_.size()));
  }

 private:
  std::string bytes_;
  std::vector<int64_t> begins_{0};
};

// A hash table over some pieces of a PieceList, which must outlive it. Probing is linear in a table
// at most half full; no file and no request can choose pieces that collide.
class PieceIndex {
 public:
  explicit PieceIndex(const PieceList& pieces) : pieces_(&pieces) {}

  int32_t Find(std::string_view piece) const;  // -1 if absent

  // Indexes piece `id` of the list. An equal piece that is there already stays: its id, else -1.
  int32_t Insert(int32_t id);

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;  // -1: free
  };

  void Grow();
  size_t Probe(std::string_view piece, uint32_t hash) const;

  const PieceList* pieces_;
  SecretHash secret_;
  std::vector<Slot> slots_ = std::vector<Slot>(16);  // a power of two
  size_t used_ = 0;
};

}  // namespace trine
