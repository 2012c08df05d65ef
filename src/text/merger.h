// Merging: joins neighbours in a row of symbols, the lowest rank first, leftmost among equals,
// until no two neighbours merge. It knows no text; bpe.h says what the symbols stand for.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/text/hash.h"

namespace trine {

// Neighbouring symbols -> the merge that joins them.
class MergeTable {
 public:
  static constexpr int32_t kNoRank = INT32_MAX;
  struct Merge {
    int32_t rank = kNoRank;  // kNoRank: the two do not merge
    int32_t symbol = -1;     // what they become
  };

  MergeTable() : slots_(1) {}

  Merge Find(int32_t left, int32_t right) const;

  // The first of equal pairs stays: false if there is one. Ranks are >= 0 and below kNoRank.
  bool Insert(int32_t left, int32_t right, Merge merge);

 private:
  struct Slot {
    uint64_t pair = 0;
    Merge merge;  // kNoRank: free
  };

  size_t Probe(uint64_t pair) const;

  SecretHash secret_;
  std::vector<Slot> slots_;  // a power of two, at most half full
  size_t used_ = 0;
};

// Memory that calls of MergeAll reuse.
struct MergeScratch {
  std::vector<int32_t> symbols;  // the row: in and out
  std::vector<MergeTable::Merge> merges;
  std::vector<int32_t> ranks;
  std::vector<int32_t> tree;
  std::bitset<256> missing;  // bytes met that nothing stands for; bpe.h
};

// Merges scratch->symbols (fewer than 2^31) in place. lengths[s]: how many symbols of the row that
// comes in make up s, so 1 for those in it. n log n; about 8 bytes a symbol.
void MergeAll(const MergeTable& table, const std::vector<int32_t>& lengths, MergeScratch* scratch);

}  // namespace trine
