// AVX2, FMA and F16C. Compiled with -mavx2 -mfma -mf16c.
#include <immintrin.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "kernels/compiler.hh"
#include "kernels/matmul.hh"

namespace slipstream {
namespace matmul_avx2 {

#include "kernels/bits.hh"
#include "isa/dot_avx2.hh"
#include "kernels/matmul_level.hh"

}  // namespace matmul_avx2

const MatmulKernels& matmul_kernels_avx2() {
  static constexpr MatmulKernels kernels = matmul_avx2::kernels_of<matmul_avx2::Avx2>();
  return kernels;
}

}  // namespace slipstream
