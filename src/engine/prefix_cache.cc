#include "src/engine/prefix_cache.h"

#include <algorithm>

#include "src/core/check.h"
#include "src/text/hash.h"

namespace trine {
namespace {

uint64_t Hash(int32_t parent, std::span<const int32_t> tokens) {
  const SecretHash secret;
  uint64_t hash = secret.Mix(secret.start(), static_cast<uint32_t>(parent));
  for (const int32_t token : tokens) hash = secret.Mix(hash, static_cast<uint32_t>(token));
  return hash;
}

std::span<const int32_t> PageOf(std::span<const int32_t> tokens, size_t page) {
  return tokens.subspan(page * kPageTokens, kPageTokens);
}

}  // namespace

PrefixCache::PrefixCache(int64_t pages, int64_t snapshots, bool recurrent)
    : free_(pages), recurrent_(recurrent) {
  for (int64_t i = snapshots - 1; i >= 0; --i) free_snapshots_.push_back(static_cast<int32_t>(i));
}

int32_t PrefixCache::Child(int32_t parent, std::span<const int32_t> tokens) const {
  const auto [first, last] = by_hash_.equal_range(Hash(parent, tokens));
  for (auto it = first; it != last; ++it) {
    const Node& node = nodes_[static_cast<size_t>(it->second)];
    if (node.parent == parent && std::equal(tokens.begin(), tokens.end(), node.tokens.begin())) {
      return it->second;
    }
  }
  return -1;
}

// The nodes of the longest beginning that can be used.
std::vector<int32_t> PrefixCache::Path(std::span<const int32_t> tokens) const {
  std::vector<int32_t> path;
  size_t usable = 0;
  for (size_t page = 0; (page + 1) * kPageTokens <= tokens.size(); ++page) {
    const int32_t node = Child(path.empty() ? -1 : path.back(), PageOf(tokens, page));
    if (node < 0) break;
    path.push_back(node);
    if (!recurrent_ || nodes_[static_cast<size_t>(node)].snapshot >= 0) usable = path.size();
  }
  path.resize(usable);
  return path;
}

int32_t PrefixCache::Find(std::span<const int32_t> tokens, Holding& holding) {
  holding.nodes = Path(tokens);
  for (const int32_t node : holding.nodes) {
    Use(node);
    holding.pages.push_back(nodes_[static_cast<size_t>(node)].page);
  }
  if (!recurrent_ || holding.nodes.empty()) return -1;
  Node& last = nodes_[static_cast<size_t>(holding.nodes.back())];
  if (last.waiting++ == 0) with_snapshot_.erase({last.last_used, holding.nodes.back()});
  return last.snapshot;
}

void PrefixCache::Restored(const Holding& holding) {
  Node& last = nodes_[static_cast<size_t>(holding.nodes.back())];
  if (--last.waiting == 0) with_snapshot_.emplace(last.last_used, holding.nodes.back());
}

void PrefixCache::Add(std::span<const int32_t> tokens, Holding& holding) {
  const size_t full = std::min(tokens.size() / kPageTokens, holding.pages.size());
  for (size_t page = holding.nodes.size(); page < full; ++page) {
    const int32_t parent = page == 0 ? -1 : holding.nodes.back();
    int32_t node = Child(parent, PageOf(tokens, page));
    if (node < 0) {
      node = Insert(parent, PageOf(tokens, page), holding.pages[page]);
    } else if (nodes_[static_cast<size_t>(node)].users == 0) {
      std::vector<int32_t> twin = {nodes_[static_cast<size_t>(node)].page};
      free_.Release(twin);
      nodes_[static_cast<size_t>(node)].page = holding.pages[page];
    } else {
      return;
    }
    Use(node);
    holding.nodes.push_back(node);
  }
}

// Unused until its sequence uses it.
int32_t PrefixCache::Insert(int32_t parent, std::span<const int32_t> tokens, int32_t page) {
  if (free_nodes_.empty()) {
    free_nodes_.push_back(static_cast<int32_t>(nodes_.size()));
    nodes_.emplace_back();
  }
  const int32_t index = free_nodes_.back();
  free_nodes_.pop_back();
  Node& node = nodes_[static_cast<size_t>(index)];
  node = {};
  node.parent = parent;
  node.page = page;
  node.last_used = ++clock_;
  node.tokens.assign(tokens.begin(), tokens.end());
  by_hash_.emplace(Hash(parent, tokens), index);
  if (parent >= 0) ++nodes_[static_cast<size_t>(parent)].children;
  leaves_.emplace(node.last_used, index);
  ++idle_;
  return index;
}

void PrefixCache::Use(int32_t index) {
  Node& node = nodes_[static_cast<size_t>(index)];
  if (node.users++ > 0) return;
  leaves_.erase({node.last_used, index});
  --idle_;
}

void PrefixCache::Leave(int32_t index) {
  Node& node = nodes_[static_cast<size_t>(index)];
  if (--node.users > 0) return;
  const bool snapshot = with_snapshot_.erase({node.last_used, index}) > 0;
  node.last_used = ++clock_;
  if (snapshot) with_snapshot_.emplace(node.last_used, index);
  if (node.children == 0) leaves_.emplace(node.last_used, index);
  ++idle_;
}

void PrefixCache::Release(Holding& holding) {
  std::vector<int32_t> own(holding.pages.begin() + std::ssize(holding.nodes),
                           holding.pages.end());
  free_.Release(own);
  // From the end, so that what is above was used last.
  for (size_t i = holding.nodes.size(); i-- > 0;) Leave(holding.nodes[i]);
  holding = {};
}

int32_t PrefixCache::Take() {
  if (free_.available() == 0) Evict();
  return free_.Take();
}

void PrefixCache::Evict() {
  TRINE_CHECK(!leaves_.empty(), "pages are there before they are taken");
  const int32_t index = leaves_.begin()->second;
  Node& node = nodes_[static_cast<size_t>(index)];
  leaves_.erase(leaves_.begin());
  --idle_;
  if (node.snapshot >= 0) {
    with_snapshot_.erase({node.last_used, index});
    free_snapshots_.push_back(node.snapshot);
  }
  const auto [first, last] = by_hash_.equal_range(Hash(node.parent, node.tokens));
  by_hash_.erase(std::find_if(first, last, [&](const auto& e) { return e.second == index; }));
  if (node.parent >= 0) {
    Node& parent = nodes_[static_cast<size_t>(node.parent)];
    if (--parent.children == 0 && parent.users == 0) {
      leaves_.emplace(parent.last_used, node.parent);
    }
  }
  std::vector<int32_t> page = {node.page};
  free_.Release(page);
  free_nodes_.push_back(index);
}

int32_t PrefixCache::TakeSnapshot() {
  if (free_snapshots_.empty() && !with_snapshot_.empty()) {
    const int32_t index = with_snapshot_.begin()->second;
    with_snapshot_.erase(with_snapshot_.begin());
    free_snapshots_.push_back(std::exchange(nodes_[static_cast<size_t>(index)].snapshot, -1));
  }
  if (free_snapshots_.empty()) return -1;
  const int32_t snapshot = free_snapshots_.back();
  free_snapshots_.pop_back();
  return snapshot;
}

void PrefixCache::Detach(const Holding& holding, int64_t pages) {
  if (pages > std::ssize(holding.nodes)) return;
  const int32_t index = holding.nodes[static_cast<size_t>(pages - 1)];
  Node& node = nodes_[static_cast<size_t>(index)];
  if (node.snapshot < 0 || node.waiting > 0) return;
  with_snapshot_.erase({node.last_used, index});
  ReturnSnapshot(std::exchange(node.snapshot, -1));
}

void PrefixCache::Attach(const Holding& holding, int64_t pages, int32_t snapshot) {
  if (pages > std::ssize(holding.nodes)) return ReturnSnapshot(snapshot);
  const int32_t index = holding.nodes[static_cast<size_t>(pages - 1)];
  Node& node = nodes_[static_cast<size_t>(index)];
  if (node.snapshot >= 0) return ReturnSnapshot(snapshot);
  node.snapshot = snapshot;
  with_snapshot_.emplace(node.last_used, index);
}

}  // namespace trine
