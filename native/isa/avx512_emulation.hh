// AVX-512 on a CPU without it, for the bit checks only: SIMDe, plus the intrinsics it lacks, each
// as two 256-bit halves. Never part of a shipped build.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx2.h>
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

namespace slipstream::emulation {

inline __m256 low_half(__m512 v) { return _mm512_castps512_ps256(v); }
inline __m256 high_half(__m512 v) {
  return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
}
inline __m512 join(__m256 low, __m256 high) {
  const __m512d base = _mm512_castps_pd(_mm512_castps256_ps512(low));
  return _mm512_castpd_ps(_mm512_insertf64x4(base, _mm256_castps_pd(high), 1));
}
inline __m512i join(__m256i low, __m256i high) {
  return _mm512_castps_si512(join(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high)));
}
inline __m256i low_half(__m512i v) { return _mm512_castsi512_si256(v); }
inline __m256i high_half(__m512i v) {
  return _mm256_castps_si256(high_half(_mm512_castsi512_ps(v)));
}

inline __m512 cvtph_ps(__m256i v) {
  return join(_mm256_cvtph_ps(_mm256_castsi256_si128(v)),
              _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1)));
}
inline __m256i cvtps_ph(__m512 v) {
  return _mm256_set_m128i(_mm256_cvtps_ph(high_half(v), 0), _mm256_cvtps_ph(low_half(v), 0));
}
inline __m512i srai_epi32(__m512i v, int count) {
  return join(_mm256_srai_epi32(low_half(v), count), _mm256_srai_epi32(high_half(v), count));
}
inline __m512i cvtepi8_epi32(__m128i v) {
  return join(_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)));
}
inline __m512 cvtepi32_ps(__m512i v) {
  return join(_mm256_cvtepi32_ps(low_half(v)), _mm256_cvtepi32_ps(high_half(v)));
}
inline __m512d cvtps_pd(__m256 v) {
  const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(v));
  const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
  return _mm512_castps_pd(join(_mm256_castpd_ps(low), _mm256_castpd_ps(high)));
}
inline __m512 maskz_loadu_ps(__mmask16 mask, const float* p) {
  alignas(64) float lane[16];
  for (int i = 0; i < 16; ++i) lane[i] = mask >> i & 1 ? p[i] : 0.0f;
  return _mm512_loadu_ps(lane);
}
inline void mask_storeu_ps(float* p, __mmask16 mask, __m512 v) {
  alignas(64) float lane[16];
  _mm512_storeu_ps(lane, v);
  for (int i = 0; i < 16; ++i)
    if (mask >> i & 1) p[i] = lane[i];
}

}  // namespace slipstream::emulation

#define _mm512_cvtph_ps slipstream::emulation::cvtph_ps
#define _mm512_cvtps_ph(v, rounding) slipstream::emulation::cvtps_ph(v)
#define _mm512_srai_epi32 slipstream::emulation::srai_epi32
#define _mm512_cvtepi8_epi32 slipstream::emulation::cvtepi8_epi32
#define _mm512_cvtepi32_ps slipstream::emulation::cvtepi32_ps
#define _mm512_cvtps_pd slipstream::emulation::cvtps_pd
#define _mm512_maskz_loadu_ps slipstream::emulation::maskz_loadu_ps
#define _mm512_mask_storeu_ps slipstream::emulation::mask_storeu_ps
