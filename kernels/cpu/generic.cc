// The kernels in plain C++: the meaning of every other unit, and the path of any processor.
#define TRINE_SIMD_GENERIC
#define TRINE_UNIT generic
#define TRINE_UNIT_NAME "generic"
#include "kernels/cpu/unit.h"

const trine::cpu::CpuKernels* trine::cpu::GenericKernels() {
  return &generic::kKernels;
}
