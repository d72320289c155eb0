// AVX-512 with VNNI. Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni.
#if defined(SLIPSTREAM_EMULATE_AVX512)
#include "isa/avx512_emulation.hh"
#define _mm512_cvtepu16_epi32(v)                                                       \
  slipstream::emulation::join(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(v)),        \
                              _mm256_cvtepu16_epi32(_mm256_extracti128_si256(v, 1)))
#define _mm512_cvtepu8_epi32(v)                                                        \
  slipstream::emulation::join(_mm256_cvtepu8_epi32(v),                                 \
                              _mm256_cvtepu8_epi32(_mm_srli_si128(v, 8)))
#else
#include <immintrin.h>
#endif

// GCC 12 takes the undefined vectors inside its own intrinsics for uninitialised variables.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "kernels/compiler.hh"
#include "kernels/matmul.hh"

namespace slipstream {
namespace matmul_avx512 {

#include "kernels/bits.hh"
#include "isa/dot_avx512.hh"
#include "kernels/matmul_level.hh"

}  // namespace matmul_avx512

const MatmulKernels& matmul_kernels_avx512() {
  static constexpr MatmulKernels kernels = matmul_avx512::kernels_of<matmul_avx512::Avx512>();
  return kernels;
}

}  // namespace slipstream
