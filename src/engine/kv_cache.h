// The paged KV cache. Page ids mean the same on every rank; each rank stores its own heads' share.
// Rank 0 hands pages out (PageAllocator), every rank holds the memory (KvCache). Source: paged
// attention (Kwon et al. 2023).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.h"

namespace trine {

// Pages that hold positions [0, tokens).
inline constexpr int64_t PagesFor(int64_t tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

class PageAllocator {
 public:
  explicit PageAllocator(int64_t pages);

  int64_t available() const { return static_cast<int64_t>(free_.size()); }
  int32_t Take();  // requires available() > 0
  void Release(int32_t page) { free_.push_back(page); }

 private:
  std::vector<int32_t> free_;  // the next to hand out is last
};

class KvCache {
 public:
  // Memory for `pages` pages of every layer; pages are touched when first used.
  KvCache(Backend& backend, const KvLayout& layout, int layers, int64_t pages);

  std::span<const KvPages> layers() const { return layers_; }
  int64_t bytes() const { return memory_.bytes(); }

 private:
  Buffer memory_;
  std::vector<KvPages> layers_;
};

}  // namespace trine
