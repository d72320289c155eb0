// 16 virtual lanes in one 512-bit register (AVX-512 F, with AVX2, FMA and F16C for the folds).
// lanes_portable.hh defines the meaning of every function. SLIPSTREAM_EMULATE_AVX512 compiles the
// same source through SIMDe, so that its bits can be checked on any x86 CPU with AVX2.
#pragma once

#ifdef SLIPSTREAM_EMULATE_AVX512
#include "avx512_emulation.hh"
#else
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>

#include "fold_avx.hh"

namespace slipstream::SLIPSTREAM_LEVEL {

constexpr int kLanes = 16;

struct F32x16 {
  __m512 all;
};
struct I32x16 {
  __m512i all;
};
struct Mask16 {
  __mmask16 all;
};
struct F64x16 {
  __m512d low, high;
};
struct U64x8 {
  __m512i all;
};

SLIPSTREAM_INLINE F32x16 set(float x) { return {_mm512_set1_ps(x)}; }
SLIPSTREAM_INLINE F32x16 zero() { return {_mm512_setzero_ps()}; }
SLIPSTREAM_INLINE F32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
SLIPSTREAM_INLINE void pin(F32x16&) {}
SLIPSTREAM_INLINE void store(float* p, F32x16 v) { _mm512_storeu_ps(p, v.all); }

// Bits begin .. end - 1; both are clamped to 0 .. 16.
SLIPSTREAM_INLINE Mask16 lane_range(int begin, int end) {
  const auto below = [](int count) {
    return count <= 0 ? 0u : count >= kLanes ? 0xffffu : (1u << count) - 1u;
  };
  return {__mmask16(below(end) & ~below(begin))};
}
SLIPSTREAM_INLINE F32x16 load_first(const float* p, int count) {
  return {_mm512_maskz_loadu_ps(lane_range(0, count).all, p)};
}
SLIPSTREAM_INLINE void store_first(float* p, int count, F32x16 v) {
  _mm512_mask_storeu_ps(p, lane_range(0, count).all, v.all);
}

SLIPSTREAM_INLINE F32x16 add(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.all, b.all)}; }
SLIPSTREAM_INLINE F32x16 sub(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.all, b.all)}; }
SLIPSTREAM_INLINE F32x16 mul(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.all, b.all)}; }
SLIPSTREAM_INLINE F32x16 div(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.all, b.all)}; }
SLIPSTREAM_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm512_fmadd_ps(a.all, b.all, c.all)};
}
SLIPSTREAM_INLINE F32x16 maximum(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.all, b.all)}; }
SLIPSTREAM_INLINE F32x16 minimum(F32x16 a, F32x16 b) { return {_mm512_min_ps(a.all, b.all)}; }

SLIPSTREAM_INLINE Mask16 greater(F32x16 a, F32x16 b) {
  return {_mm512_cmp_ps_mask(a.all, b.all, _CMP_GT_OQ)};
}
SLIPSTREAM_INLINE Mask16 at_least(F32x16 a, F32x16 b) {
  return {_mm512_cmp_ps_mask(a.all, b.all, _CMP_GE_OQ)};
}
SLIPSTREAM_INLINE Mask16 equal(F32x16 a, F32x16 b) {
  return {_mm512_cmp_ps_mask(a.all, b.all, _CMP_EQ_OQ)};
}
SLIPSTREAM_INLINE Mask16 both(Mask16 a, Mask16 b) { return {__mmask16(a.all & b.all)}; }
SLIPSTREAM_INLINE uint32_t bits(Mask16 mask) { return mask.all; }
SLIPSTREAM_INLINE F32x16 select(Mask16 mask, F32x16 yes, F32x16 no) {
  return {_mm512_mask_blend_ps(mask.all, no.all, yes.all)};
}

SLIPSTREAM_INLINE I32x16 integers(F32x16 v) { return {_mm512_castps_si512(v.all)}; }
SLIPSTREAM_INLINE F32x16 floats(I32x16 v) { return {_mm512_castsi512_ps(v.all)}; }
SLIPSTREAM_INLINE I32x16 set_int(uint32_t x) { return {_mm512_set1_epi32(int(x))}; }
SLIPSTREAM_INLINE I32x16 add(I32x16 a, I32x16 b) { return {_mm512_add_epi32(a.all, b.all)}; }
SLIPSTREAM_INLINE I32x16 sub(I32x16 a, I32x16 b) { return {_mm512_sub_epi32(a.all, b.all)}; }
SLIPSTREAM_INLINE I32x16 bit_and(I32x16 a, I32x16 b) { return {_mm512_and_si512(a.all, b.all)}; }
SLIPSTREAM_INLINE I32x16 bit_or(I32x16 a, I32x16 b) { return {_mm512_or_si512(a.all, b.all)}; }
SLIPSTREAM_INLINE I32x16 bit_xor(I32x16 a, I32x16 b) { return {_mm512_xor_si512(a.all, b.all)}; }
template <int count>
SLIPSTREAM_INLINE I32x16 shift_left(I32x16 v) {
  return {_mm512_slli_epi32(v.all, count)};
}
template <int count>
SLIPSTREAM_INLINE I32x16 shift_right(I32x16 v) {
  return {_mm512_srli_epi32(v.all, count)};
}
template <int count>
SLIPSTREAM_INLINE I32x16 shift_right_signed(I32x16 v) {
  return {_mm512_srai_epi32(v.all, count)};
}
SLIPSTREAM_INLINE F32x16 to_float(I32x16 v) { return {_mm512_cvtepi32_ps(v.all)}; }
SLIPSTREAM_INLINE void store(uint32_t* p, I32x16 v) { _mm512_storeu_si512(p, v.all); }

SLIPSTREAM_INLINE F32x16 load_half(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
SLIPSTREAM_INLINE void store_half(uint16_t* p, F32x16 v) {
  _mm256_storeu_si256(
      reinterpret_cast<__m256i*>(p),
      _mm512_cvtps_ph(v.all, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

SLIPSTREAM_INLINE F32x16 set_half(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_set1_epi16(int16_t(*p)))};
}
SLIPSTREAM_INLINE I32x16 load_bytes(const int8_t* p) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}

SLIPSTREAM_INLINE __m256 low_half(F32x16 v) { return _mm512_castps512_ps256(v.all); }
SLIPSTREAM_INLINE __m256 high_half(F32x16 v) {
  return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v.all), 1));
}
SLIPSTREAM_INLINE void store_folded_once(float* p, F32x16 v) {
  _mm256_storeu_ps(p, _mm256_add_ps(low_half(v), high_half(v)));
}
SLIPSTREAM_INLINE F32x16 fold_rows(const float* p) {
  const __m512d low = _mm512_castps_pd(_mm512_castps256_ps512(fold_octet(p)));
  return {_mm512_castpd_ps(_mm512_insertf64x4(low, _mm256_castps_pd(fold_octet(p + 64)), 1))};
}
SLIPSTREAM_INLINE float fold(F32x16 v) {
  return fold_eight(_mm256_add_ps(low_half(v), high_half(v)));
}
SLIPSTREAM_INLINE float fold_maximum(F32x16 v) {
  return fold_maximum_eight(_mm256_max_ps(low_half(v), high_half(v)));
}

SLIPSTREAM_INLINE F64x16 zero_double() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
SLIPSTREAM_INLINE F64x16 add_widened(F64x16 sum, F32x16 v) {
  return {_mm512_add_pd(sum.low, _mm512_cvtps_pd(low_half(v))),
          _mm512_add_pd(sum.high, _mm512_cvtps_pd(high_half(v)))};
}
SLIPSTREAM_INLINE double fold(F64x16 v) {
  const __m512d eight = _mm512_add_pd(v.low, v.high);
  return fold_four(
      _mm256_add_pd(_mm512_castpd512_pd256(eight), _mm512_extractf64x4_pd(eight, 1)));
}

SLIPSTREAM_INLINE U64x8 set_wide(uint64_t x) { return {_mm512_set1_epi64(int64_t(x))}; }
SLIPSTREAM_INLINE U64x8 count_up_from(uint64_t x) {
  const __m512i steps = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
  return {_mm512_add_epi64(_mm512_set1_epi64(int64_t(x)), steps)};
}
SLIPSTREAM_INLINE U64x8 load_wide(const uint64_t* p) { return {_mm512_loadu_si512(p)}; }
SLIPSTREAM_INLINE void store_wide(uint64_t* p, U64x8 v) { _mm512_storeu_si512(p, v.all); }
SLIPSTREAM_INLINE U64x8 multiply_low_words(U64x8 a, U64x8 b) {
  return {_mm512_mul_epu32(a.all, b.all)};
}
SLIPSTREAM_INLINE U64x8 high_words(U64x8 v) { return {_mm512_srli_epi64(v.all, 32)}; }
SLIPSTREAM_INLINE U64x8 bit_xor(U64x8 a, U64x8 b) { return {_mm512_xor_si512(a.all, b.all)}; }
SLIPSTREAM_INLINE I32x16 low_words(U64x8 low, U64x8 high) {
  const __m512i base = _mm512_castsi256_si512(_mm512_cvtepi64_epi32(low.all));
  return {_mm512_inserti64x4(base, _mm512_cvtepi64_epi32(high.all), 1)};
}

}  // namespace slipstream::SLIPSTREAM_LEVEL
