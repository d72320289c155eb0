// AVX-VNNI on a CPU with AVX2 alone, for the bit checks only. Never part of a shipped build.
#pragma once

#include <immintrin.h>

namespace slipstream::emulation {

// sum + the four products of unsigned bytes of `a` and signed bytes of `b`, without saturation: a
// product fits int16, and madd_epi16 adds two of them in int32.
inline __m256i dpbusd_avx(__m256i sum, __m256i a, __m256i b) {
  const __m256i even = _mm256_and_si256(a, _mm256_set1_epi16(0xff));
  const __m256i odd = _mm256_srli_epi16(a, 8);
  const __m256i even_factors = _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8);
  const __m256i odd_factors = _mm256_srai_epi16(b, 8);
  const __m256i products = _mm256_add_epi32(_mm256_madd_epi16(even, even_factors),
                                            _mm256_madd_epi16(odd, odd_factors));
  return _mm256_add_epi32(sum, products);
}

}  // namespace slipstream::emulation

#define _mm256_dpbusd_avx_epi32 slipstream::emulation::dpbusd_avx
