// One instruction-set unit: the kernels compiled in a namespace of their own. The including file
// defines TRINE_UNIT (the namespace) and chooses the lanes; it alone is compiled with that
// instruction set's flags.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(TRINE_SIMD_AVX2) || defined(TRINE_SIMD_AVX512)
#include <immintrin.h>
#endif

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/half.h"

namespace trine::cpu::TRINE_UNIT {
namespace {

// The lanes come first.
// clang-format off
#include "kernels/cpu/simd.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/float_matmul.h"
#include "kernels/cpu/coded_matmul.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/rowwise.h"
#include "kernels/cpu/rotation.h"
#include "kernels/cpu/delta_net.h"
// clang-format on

constexpr CpuKernels kKernels = {
    TRINE_UNIT_NAME, kBaseThree, LinearPanels, LinearPartialPanels, PackTokenTiles, QuantiseTiles,
    RmsNormRow,      SiluMulRow,   AddPartialRow,       RotateBlock,    SigmoidMulRow,
    DeltaGatesRow,   ConvSilu,     DeltaRule,           Attention};

}  // namespace
}  // namespace trine::cpu::TRINE_UNIT
