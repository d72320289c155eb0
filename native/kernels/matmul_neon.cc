// Arm NEON with dot products. Compiled with -march=armv8.2-a+dotprod.
#include <arm_neon.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "kernels/compiler.hh"
#include "kernels/matmul.hh"

namespace slipstream {
namespace matmul_neon {

#include "kernels/bits.hh"
#include "isa/dot_neon.hh"
#include "kernels/matmul_level.hh"

}  // namespace matmul_neon

const MatmulKernels& matmul_kernels_neon() {
  static constexpr MatmulKernels kernels = matmul_neon::kernels_of<matmul_neon::Neon>();
  return kernels;
}

}  // namespace slipstream
