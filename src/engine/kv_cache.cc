#include "src/engine/kv_cache.h"

#include "src/core/check.h"

namespace trine {

PageAllocator::PageAllocator(int64_t pages) {
  for (int64_t page = pages - 1; page >= 0; --page) free_.push_back(static_cast<int32_t>(page));
}

int32_t PageAllocator::Take() {
  TRINE_CHECK(!free_.empty(), "pages are reserved before they are taken");
  const int32_t page = free_.back();
  free_.pop_back();
  return page;
}

KvCache::KvCache(Backend& backend, const KvLayout& layout, int layers, int64_t pages) {
  const int64_t layer_bytes = pages * backend.KvPageBytes(layout);
  memory_ = backend.Allocate(layers * layer_bytes);
  for (int i = 0; i < layers; ++i) layers_.push_back({memory_.as() + i * layer_bytes, layout});
}

}  // namespace trine
