#include "src/text/merger.h"

#include <algorithm>
#include <bit>

namespace trine {
namespace {

constexpr int32_t kNoRank = MergeTable::kNoRank;

// Up to here finding the lowest rank by looking at all is faster than a tree.
constexpr size_t kShortRow = 48;

uint64_t PairOf(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

void MergeShort(const MergeTable& table, MergeScratch* scratch) {
  std::vector<int32_t>& symbols = scratch->symbols;
  std::vector<MergeTable::Merge>& merges = scratch->merges;
  merges.resize(symbols.size());
  for (size_t i = 1; i < symbols.size(); ++i)
    merges[i - 1] = table.Find(symbols[i - 1], symbols[i]);
  if (!symbols.empty()) merges.back() = {};
  const auto lower = [](const auto& a, const auto& b) { return a.rank < b.rank; };
  while (!symbols.empty()) {
    const auto best = std::min_element(merges.begin(), merges.end(), lower);  // leftmost of equals
    if (best->rank == kNoRank) return;
    const auto left = static_cast<size_t>(best - merges.begin());
    symbols[left] = best->symbol;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(left) + 1);
    merges.erase(best + 1);
    merges[left] = left + 1 == symbols.size() ? MergeTable::Merge{}
                                              : table.Find(symbols[left], symbols[left + 1]);
    if (left > 0) merges[left - 1] = table.Find(symbols[left - 1], symbols[left]);
  }
}

// The row keeps its cells: a symbol of length n covers n of them and stands in the first and in the
// last, so that both neighbours can be found without links. ranks[i] is that of the merge of the
// symbol that begins at i with the next one, kNoRank if none does. Over blocks of ranks there is a
// tree of minima: node i has the children 2i and 2i + 1, and the blocks are its leaves.
class LongRow {
 public:
  LongRow(const MergeTable& table, const std::vector<int32_t>& lengths, MergeScratch* scratch)
      : table_(table),
        lengths_(lengths),
        symbols_(scratch->symbols),
        ranks_(scratch->ranks),
        tree_(scratch->tree),
        size_(symbols_.size()),
        leaves_(std::bit_ceil((size_ + kBlock - 1) / kBlock)) {
    ranks_.assign((size_ + kBlock - 1) / kBlock * kBlock, kNoRank);
    for (size_t i = 1; i < size_; ++i) {
      ranks_[i - 1] = table.Find(symbols_[i - 1], symbols_[i]).rank;
    }
    tree_.assign(2 * leaves_, kNoRank);
    for (size_t block = 0; block * kBlock < size_; ++block) {
      tree_[leaves_ + block] = BlockMinimum(block);
    }
    for (size_t node = leaves_ - 1; node > 0; --node) tree_[node] = Lower(node);
  }

  void Run() {
    while (tree_[1] != kNoRank) MergeAt(FindLowest());
    Compact();
  }

 private:
  static constexpr size_t kBlock = 32;

  size_t Length(int32_t symbol) const {
    return static_cast<size_t>(lengths_[static_cast<size_t>(symbol)]);
  }
  int32_t BlockMinimum(size_t block) const {
    const int32_t* ranks = ranks_.data() + block * kBlock;
    int32_t lowest = kNoRank;
    for (size_t i = 0; i < kBlock; ++i) lowest = std::min(lowest, ranks[i]);
    return lowest;
  }
  int32_t Lower(size_t node) const { return std::min(tree_[2 * node], tree_[2 * node + 1]); }

  // The leftmost cell of the lowest rank.
  size_t FindLowest() const {
    const int32_t lowest = tree_[1];
    size_t node = 1;
    while (node < leaves_) node = tree_[2 * node] == lowest ? 2 * node : 2 * node + 1;
    size_t cell = (node - leaves_) * kBlock;
    while (ranks_[cell] != lowest) ++cell;
    return cell;
  }

  void SetRank(size_t cell, int32_t rank) {
    if (ranks_[cell] == rank) return;
    ranks_[cell] = rank;
    size_t node = leaves_ + cell / kBlock;
    int32_t lowest = BlockMinimum(cell / kBlock);
    while (tree_[node] != lowest) {
      tree_[node] = lowest;
      node /= 2;
      if (node == 0) return;
      lowest = Lower(node);
    }
  }

  void MergeAt(size_t left) {
    const size_t right = left + Length(symbols_[left]);
    const size_t next = right + Length(symbols_[right]);
    const int32_t merged = table_.Find(symbols_[left], symbols_[right]).symbol;
    symbols_[left] = merged;
    symbols_[next - 1] = merged;
    SetRank(right, kNoRank);
    SetRank(left, next < size_ ? table_.Find(merged, symbols_[next]).rank : kNoRank);
    if (left == 0) return;
    const size_t previous = left - Length(symbols_[left - 1]);
    SetRank(previous, table_.Find(symbols_[previous], merged).rank);
  }

  void Compact() {
    size_t count = 0;
    for (size_t cell = 0; cell < size_;) {
      const int32_t symbol = symbols_[cell];
      symbols_[count++] = symbol;
      cell += Length(symbol);
    }
    symbols_.resize(count);
  }

  const MergeTable& table_;
  const std::vector<int32_t>& lengths_;
  std::vector<int32_t>& symbols_;
  std::vector<int32_t>& ranks_;
  std::vector<int32_t>& tree_;
  const size_t size_, leaves_;
};

}  // namespace

size_t MergeTable::Probe(uint64_t pair) const {
  const size_t mask = slots_.size() - 1;
  const uint64_t hash = secret_.Mix(secret_.start(), pair);
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.pair == pair || slot.merge.rank == kNoRank) return i;
  }
}

MergeTable::Merge MergeTable::Find(int32_t left, int32_t right) const {
  return slots_[Probe(PairOf(left, right))].merge;
}

bool MergeTable::Insert(int32_t left, int32_t right, Merge merge) {
  const uint64_t pair = PairOf(left, right);
  Slot& slot = slots_[Probe(pair)];
  if (slot.merge.rank != kNoRank) return false;
  slot = {pair, merge};
  if (++used_ * 2 < slots_.size()) return true;
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& moved : old) {
    if (moved.merge.rank != kNoRank) slots_[Probe(moved.pair)] = moved;
  }
  return true;
}

void MergeAll(const MergeTable& table, const std::vector<int32_t>& lengths, MergeScratch* scratch) {
  if (scratch->symbols.size() <= kShortRow) return MergeShort(table, scratch);
  LongRow(table, lengths, scratch).Run();
}

}  // namespace trine
