// AVX2, FMA, F16C and AVX-VNNI. Compiled with -mavx2 -mfma -mf16c -mavxvnni.
#if defined(SLIPSTREAM_EMULATE_AVX_VNNI)
#include "isa/avx_vnni_emulation.hh"
#else
#include <immintrin.h>
#endif

#include <cstdlib>
#include <cstring>
#include <utility>

#include "kernels/compiler.hh"
#include "kernels/matmul.hh"

namespace slipstream {
namespace matmul_avx_vnni {

#include "kernels/bits.hh"
#include "isa/dot_avx2.hh"
#include "isa/dot_avx_vnni.hh"
#include "kernels/matmul_level.hh"

}  // namespace matmul_avx_vnni

const MatmulKernels& matmul_kernels_avx_vnni() {
  static constexpr MatmulKernels kernels = matmul_avx_vnni::kernels_of<matmul_avx_vnni::AvxVnni>();
  return kernels;
}

}  // namespace slipstream
