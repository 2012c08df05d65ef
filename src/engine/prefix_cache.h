// The prefix cache: which pages of the KV cache hold which tokens, after the sequences that
// computed them have ended. A tree whose nodes are full pages: a node's keys and values depend on
// its tokens and on those of all nodes above it, and on nothing else (the numeric contract of
// backend.h), so a sequence that begins with the same tokens takes the pages as they are. Tokens
// are compared, a hash only finds them. Rank 0 alone has it; page ids mean the same on every rank.
// Source: RadixAttention (Zheng et al. 2024), with whole pages.
//
// A recurrent model can go on only where the state after a page was saved: a snapshot, one of a few
// slots of its own.
//
// A page is free, or in a sequence's hands alone, or a node's. Nodes that no sequence uses are
// given up when pages run out, the longest unused first, those below before those above. All memory
// is taken at the start.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/engine/kv_cache.h"

namespace trine {

class PrefixCache {
 public:
  // pages of the KV cache; snapshot slots, 0 to that many. recurrent: a hit needs a snapshot.
  PrefixCache(int64_t pages, int64_t snapshots, bool recurrent);

  // A sequence's pages in order of position; the first of them are those of `nodes`.
  struct Holding {
    std::vector<int32_t> pages;
    std::vector<int32_t> nodes;
  };

  // Pages that Take can give: free, or of nodes that no sequence uses.
  int64_t available() const { return free_.available() + idle_; }
  int32_t Take();  // requires available() > 0

  // How many tokens Find would give.
  int64_t Match(std::span<const int32_t> tokens);

  // The longest beginning of `tokens` that is there: `holding`, empty before, gets its pages.
  // Returns the snapshot of its end, which stays what it is until Restored; -1 if not recurrent or
  // if nothing was found.
  int32_t Find(std::span<const int32_t> tokens, Holding& holding);
  void Restored(const Holding& holding);

  // The full pages of `holding` that are not nodes yet become nodes, for tokens [0, whole pages);
  // up to where a node is there already, in the use of another sequence that was faster.
  void Add(std::span<const int32_t> tokens, Holding& holding);

  // Ends the use of all pages; those that are no nodes become free.
  void Release(Holding& holding);

  // A slot for a snapshot: a free one, or that of the node unused for longest; -1 if all are taken
  // by callers. It is the caller's until it is attached or given back.
  int32_t TakeSnapshot();
  bool has_free_snapshot() const { return !free_snapshots_.empty(); }
  void ReturnSnapshot(int32_t snapshot);
  // The state after the holding's first `pages` pages, kept if these are nodes. One that is there
  // already stays, and the answer is false.
  bool Attach(const Holding& holding, int64_t pages, int32_t snapshot);
  // Frees the snapshot there, if one is that nobody waits for.
  void Detach(const Holding& holding, int64_t pages);

 private:
  // Index i of nodes_; its page's tokens are at tokens_[i * kPageTokens].
  struct Node {
    int32_t parent = -1, page = -1, snapshot = -1;
    int32_t users = 0, children = 0;  // whoever uses a node uses its parent
    int32_t waiting = 0;              // for the snapshot
    int32_t chained = -1;             // the next node of the same bucket
    int32_t older = -1, newer = -1;   // neighbours among the idle ones
    uint64_t last_used = 0;
  };

  Node& node(int32_t index) { return nodes_[static_cast<size_t>(index)]; }
  const Node& node(int32_t index) const { return nodes_[static_cast<size_t>(index)]; }
  std::span<const int32_t> TokensOf(int32_t index) const {
    return std::span(tokens_).subspan(static_cast<size_t>(index) * kPageTokens, kPageTokens);
  }
  int32_t& Bucket(int32_t parent, std::span<const int32_t> tokens);
  int32_t Child(int32_t parent, std::span<const int32_t> tokens);
  size_t Path(std::span<const int32_t> tokens, std::vector<int32_t>& path);
  int32_t Insert(int32_t parent, std::span<const int32_t> tokens, int32_t page);
  void Use(int32_t index);
  void Leave(int32_t index);
  void Evict();

  PageAllocator free_;
  const bool recurrent_;
  std::vector<Node> nodes_;  // one a page at most
  std::vector<int32_t> tokens_;
  std::vector<int32_t> buckets_;  // the first node of each
  std::vector<int32_t> free_nodes_, free_snapshots_;
  std::vector<int32_t> path_;     // of Match
  std::vector<int32_t> holders_;  // of each snapshot: its node; -1: none
  // The nodes that no sequence uses, by their last use. A node was left after those below it: the
  // oldest has none.
  int32_t oldest_ = -1, newest_ = -1;
  int64_t idle_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace trine
