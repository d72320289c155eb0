// AVX-512 intrinsics in terms of AVX2, so that the level can be checked on a processor without it.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <immintrin.h>

#include <simde/x86/avx2.h>
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

// What SIMDe 0.7 lacks, half by half.
namespace emulated {

inline simde__m512i srai_epi32(simde__m512i a, int count) {
  simde__m512i_private v = simde__m512i_to_private(a);
  for (auto& half : v.m256i) half = _mm256_srai_epi32(half, count);
  return simde__m512i_from_private(v);
}

inline simde__m512i cvtepu16_epi32(__m256i a) {
  simde__m512i_private v;
  v.m256i[0] = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(a));
  v.m256i[1] = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1));
  return simde__m512i_from_private(v);
}

inline simde__m512 cvtph_ps(__m256i a) {
  simde__m512_private v;
  v.m256[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(a));
  v.m256[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1));
  return simde__m512_from_private(v);
}

inline simde__m512 cvtepi32_ps(simde__m512i a) {
  const simde__m512i_private from = simde__m512i_to_private(a);
  simde__m512_private v;
  for (int h = 0; h < 2; ++h) v.m256[h] = _mm256_cvtepi32_ps(from.m256i[h]);
  return simde__m512_from_private(v);
}

}  // namespace emulated

#undef _mm512_srai_epi32
#undef _mm512_cvtepu16_epi32
#undef _mm512_cvtph_ps
#undef _mm512_cvtepi32_ps
#define _mm512_srai_epi32(a, count) emulated::srai_epi32(a, count)
#define _mm512_cvtepu16_epi32(a) emulated::cvtepu16_epi32(a)
#define _mm512_cvtph_ps(a) emulated::cvtph_ps(a)
#define _mm512_cvtepi32_ps(a) emulated::cvtepi32_ps(a)
