// The kernels for AVX-512 (F, BW, VL, DQ) with VNNI.
#ifdef __AVX512VNNI__
#define TRINE_SIMD_AVX512
#define TRINE_UNIT avx512
#define TRINE_UNIT_NAME "avx512"
#include "kernels/cpu/unit.h"

const trine::cpu::CpuKernels* trine::cpu::Avx512Kernels() {
  return &avx512::kKernels;
}
#else
#include "kernels/cpu/cpu_kernels.h"

const trine::cpu::CpuKernels* trine::cpu::Avx512Kernels() {
  return nullptr;
}
#endif
