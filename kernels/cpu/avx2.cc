// The kernels for AVX2, FMA and F16C.
#ifdef __AVX2__
#define TRINE_SIMD_AVX2
#define TRINE_UNIT avx2
#define TRINE_UNIT_NAME "avx2"
#include "kernels/cpu/unit.h"

const trine::cpu::CpuKernels* trine::cpu::Avx2Kernels() {
  return &avx2::kKernels;
}
#else
#include "kernels/cpu/cpu_kernels.h"

const trine::cpu::CpuKernels* trine::cpu::Avx2Kernels() {
  return nullptr;
}
#endif
