// Arm NEON with dot products and the int8 matrix extension. Compiled with
// -march=armv8.2-a+dotprod+i8mm.
#include <arm_neon.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "kernels/compiler.hh"
#include "kernels/matmul.hh"

namespace slipstream {
namespace matmul_neon_i8mm {

#include "kernels/bits.hh"
#include "isa/dot_neon.hh"
#include "isa/dot_neon_i8mm.hh"
#include "kernels/matmul_level.hh"

}  // namespace matmul_neon_i8mm

const MatmulKernels& matmul_kernels_neon_i8mm() {
  static constexpr MatmulKernels kernels =
      matmul_neon_i8mm::kernels_of<matmul_neon_i8mm::NeonI8mm>();
  return kernels;
}

}  // namespace slipstream
