#include "src/engine/prefix_cache.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "src/core/check.h"
#include "src/text/hash.h"

namespace trine {
namespace {

std::span<const int32_t> PageOf(std::span<const int32_t> tokens, size_t page) {
  return tokens.subspan(page * kPageTokens, kPageTokens);
}

}  // namespace

PrefixCache::PrefixCache(int64_t pages, int64_t snapshots, bool recurrent)
    : free_(pages),
      recurrent_(recurrent),
      nodes_(static_cast<size_t>(pages)),
      tokens_(static_cast<size_t>(pages * kPageTokens)),
      buckets_(std::bit_ceil(static_cast<size_t>(2 * pages + 1)), -1),
      holders_(static_cast<size_t>(snapshots), -1) {
  for (int64_t i = pages - 1; i >= 0; --i) free_nodes_.push_back(static_cast<int32_t>(i));
  for (int64_t i = snapshots - 1; i >= 0; --i) free_snapshots_.push_back(static_cast<int32_t>(i));
}

int32_t& PrefixCache::Bucket(int32_t parent, std::span<const int32_t> tokens) {
  static const SecretHash secret;
  uint64_t hash = secret.Mix(secret.start(), static_cast<uint32_t>(parent));
  for (const int32_t token : tokens) hash = secret.Mix(hash, static_cast<uint32_t>(token));
  return buckets_[hash & (buckets_.size() - 1)];
}

int32_t PrefixCache::Child(int32_t parent, std::span<const int32_t> tokens) {
  int32_t index = Bucket(parent, tokens);
  while (index >= 0 &&
         !(node(index).parent == parent && std::ranges::equal(tokens, TokensOf(index)))) {
    index = node(index).chained;
  }
  return index;
}

// Puts the nodes of the longest beginning that is there into `path`; returns how many can be used.
size_t PrefixCache::Path(std::span<const int32_t> tokens, std::vector<int32_t>& path) {
  size_t usable = 0;
  for (size_t page = 0; (page + 1) * kPageTokens <= tokens.size(); ++page) {
    const int32_t index = Child(path.empty() ? -1 : path.back(), PageOf(tokens, page));
    if (index < 0) break;
    path.push_back(index);
    if (!recurrent_ || node(index).snapshot >= 0) usable = path.size();
  }
  return usable;
}

int64_t PrefixCache::Match(std::span<const int32_t> tokens) {
  path_.clear();
  return static_cast<int64_t>(Path(tokens, path_)) * kPageTokens;
}

int32_t PrefixCache::Find(std::span<const int32_t> tokens, Holding& holding) {
  holding.nodes.resize(Path(tokens, holding.nodes));
  for (const int32_t index : holding.nodes) {
    Use(index);
    holding.pages.push_back(node(index).page);
  }
  if (!recurrent_ || holding.nodes.empty()) return -1;
  Node& last = node(holding.nodes.back());
  ++last.waiting;
  return last.snapshot;
}

void PrefixCache::Restored(const Holding& holding) {
  --node(holding.nodes.back()).waiting;
}

void PrefixCache::Add(std::span<const int32_t> tokens, Holding& holding) {
  const size_t full = std::min(tokens.size() / kPageTokens, holding.pages.size());
  for (size_t page = holding.nodes.size(); page < full; ++page) {
    const int32_t parent = page == 0 ? -1 : holding.nodes.back();
    int32_t index = Child(parent, PageOf(tokens, page));
    if (index < 0) {
      index = Insert(parent, PageOf(tokens, page), holding.pages[page]);
    } else if (node(index).users == 0) {
      free_.Release(std::exchange(node(index).page, holding.pages[page]));
    } else {
      return;
    }
    Use(index);
    holding.nodes.push_back(index);
  }
}

// Idle until its sequence uses it.
int32_t PrefixCache::Insert(int32_t parent, std::span<const int32_t> tokens, int32_t page) {
  const int32_t index = free_nodes_.back();
  free_nodes_.pop_back();
  std::ranges::copy(tokens, tokens_.begin() + int64_t{index} * kPageTokens);
  int32_t& bucket = Bucket(parent, tokens);
  node(index) = {};
  node(index).parent = parent;
  node(index).page = page;
  node(index).users = 1;
  node(index).chained = std::exchange(bucket, index);
  if (parent >= 0) ++node(parent).children;
  Leave(index);
  return index;
}

void PrefixCache::Use(int32_t index) {
  Node& used = node(index);
  if (used.users++ > 0) return;
  (used.older < 0 ? oldest_ : node(used.older).newer) = used.newer;
  (used.newer < 0 ? newest_ : node(used.newer).older) = used.older;
  --idle_;
}

void PrefixCache::Leave(int32_t index) {
  Node& left = node(index);
  if (--left.users > 0) return;
  left.last_used = ++clock_;
  left.older = newest_;
  left.newer = -1;
  (newest_ < 0 ? oldest_ : node(newest_).newer) = index;
  newest_ = index;
  ++idle_;
}

void PrefixCache::Release(Holding& holding) {
  for (size_t i = holding.pages.size(); i-- > holding.nodes.size();)
    free_.Release(holding.pages[i]);
  // From the end, so that what is above was used last.
  for (size_t i = holding.nodes.size(); i-- > 0;) Leave(holding.nodes[i]);
  holding.pages.clear();
  holding.nodes.clear();
}

int32_t PrefixCache::Take() {
  if (free_.available() == 0) Evict();
  return free_.Take();
}

void PrefixCache::Evict() {
  TRINE_CHECK(oldest_ >= 0, "pages are there before they are taken");
  const int32_t index = oldest_;
  TRINE_CHECK(node(index).children == 0, "whoever used a node used those above it");
  Use(index);  // out of the list
  if (node(index).snapshot >= 0) ReturnSnapshot(node(index).snapshot);
  int32_t* link = &Bucket(node(index).parent, TokensOf(index));
  while (*link != index) link = &node(*link).chained;
  *link = node(index).chained;
  if (node(index).parent >= 0) --node(node(index).parent).children;
  free_.Release(node(index).page);
  free_nodes_.push_back(index);
}

int32_t PrefixCache::TakeSnapshot() {
  if (free_snapshots_.empty()) {
    int32_t oldest = -1;
    for (const int32_t index : holders_) {
      if (index < 0 || node(index).waiting > 0) continue;
      if (oldest < 0 || node(index).last_used < node(oldest).last_used) oldest = index;
    }
    if (oldest < 0) return -1;
    ReturnSnapshot(std::exchange(node(oldest).snapshot, -1));
  }
  const int32_t snapshot = free_snapshots_.back();
  free_snapshots_.pop_back();
  return snapshot;
}

void PrefixCache::ReturnSnapshot(int32_t snapshot) {
  holders_[static_cast<size_t>(snapshot)] = -1;
  free_snapshots_.push_back(snapshot);
}

void PrefixCache::Detach(const Holding& holding, int64_t pages) {
  if (pages > std::ssize(holding.nodes)) return;
  Node& holder = node(holding.nodes[static_cast<size_t>(pages - 1)]);
  if (holder.snapshot < 0 || holder.waiting > 0) return;
  ReturnSnapshot(std::exchange(holder.snapshot, -1));
}

bool PrefixCache::Attach(const Holding& holding, int64_t pages, int32_t snapshot) {
  const bool is_node = pages <= std::ssize(holding.nodes);
  const int32_t index = is_node ? holding.nodes[static_cast<size_t>(pages - 1)] : -1;
  if (index < 0 || node(index).snapshot >= 0) {
    ReturnSnapshot(snapshot);
    return false;
  }
  node(index).snapshot = snapshot;
  holders_[static_cast<size_t>(snapshot)] = index;
  return true;
}

}  // namespace trine
