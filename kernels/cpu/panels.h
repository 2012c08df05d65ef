// Repacking: a stored matrix into the panels the kernels read. Runs once, while loading.
#pragma once

#include "kernels/backend.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/thread_pool.h"

namespace trine::cpu {

class CpuWeight final : public Weight {
 public:
  CpuWeight(const WeightDesc& desc, const Panels& panels, Compute compute, Buffer memory)
      : Weight(desc), panels_(panels), compute_(compute), memory_(std::move(memory)) {}

  int64_t bytes() const override { return memory_.bytes(); }
  WeightKernel kernel() const override;
  const Panels& panels() const { return panels_; }
  int64_t panel_count() const { return (panels_.rows + 15) / 16; }

 private:
  Panels panels_;
  Compute compute_;
  Buffer memory_;
};

// The layout for a weight, data still empty. Depends on its type, granule, the compute mode and
// whether base-three panels can be multiplied, so it is the same at every rank count.
Panels PlanPanels(const WeightDesc& desc, Compute compute, bool base_three);

LoadedWeight RepackWeight(const WeightDesc& desc, Compute compute, bool base_three,
                          const RowReader& reader, ThreadPool& pool, Backend& backend);

// out [n, cols] from n stored rows. Any type.
void DecodeStoredRows(DType type, const std::byte* packed, F32View out);

}  // namespace trine::cpu
