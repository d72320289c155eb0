// The fold of 16 virtual lanes after its first step, in 256-bit registers: shared by x86 levels.
#pragma once

#include "inlining.hh"

namespace slipstream::SLIPSTREAM_LEVEL {

SLIPSTREAM_INLINE float fold_eight(__m256 v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

SLIPSTREAM_INLINE float fold_maximum_eight(__m256 v) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

SLIPSTREAM_INLINE double fold_four(__m256d v) {
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

// Lane j is the fold of row j of p[8][8]: a transposing reduction with the order of fold_eight.
SLIPSTREAM_INLINE __m256 fold_octet(const float* p) {
  const auto by_four = [=](int row) {
    const __m256 a = _mm256_loadu_ps(p + 8 * row), b = _mm256_loadu_ps(p + 8 * row + 32);
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  };
  const auto by_two = [](__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
  };
  const __m256 first = by_two(by_four(0), by_four(1));
  const __m256 second = by_two(by_four(2), by_four(3));
  return _mm256_add_ps(_mm256_shuffle_ps(first, second, 0x88),
                       _mm256_shuffle_ps(first, second, 0xdd));
}

}  // namespace slipstream::SLIPSTREAM_LEVEL
