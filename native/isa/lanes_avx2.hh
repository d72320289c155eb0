// 16 virtual lanes as pairs of 256-bit registers (AVX2, FMA, F16C). lanes_portable.hh defines the
// meaning of every function.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "fold_avx.hh"

namespace slipstream::SLIPSTREAM_LEVEL {

constexpr int kLanes = 16;

struct F32x16 {
  __m256 low, high;
};
struct I32x16 {
  __m256i low, high;
};
struct Mask16 {
  __m256 low, high;
};
struct F64x16 {
  __m256d quarter[4];
};
struct U64x8 {
  __m256i low, high;
};

SLIPSTREAM_INLINE F32x16 set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
SLIPSTREAM_INLINE F32x16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
SLIPSTREAM_INLINE F32x16 load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
SLIPSTREAM_INLINE void pin(F32x16& v) { asm("" : "+x"(v.low), "+x"(v.high)); }
SLIPSTREAM_INLINE void store(float* p, F32x16 v) {
  _mm256_storeu_ps(p, v.low);
  _mm256_storeu_ps(p + 8, v.high);
}

SLIPSTREAM_INLINE Mask16 lane_range(int begin, int end) {
  const __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i high = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
  const __m256i before = _mm256_set1_epi32(begin - 1), after = _mm256_set1_epi32(end);
  const auto inside = [=](__m256i lane) {
    return _mm256_castsi256_ps(
        _mm256_and_si256(_mm256_cmpgt_epi32(lane, before), _mm256_cmpgt_epi32(after, lane)));
  };
  return {inside(low), inside(high)};
}
SLIPSTREAM_INLINE F32x16 load_first(const float* p, int count) {
  const Mask16 mask = lane_range(0, count);
  return {_mm256_maskload_ps(p, _mm256_castps_si256(mask.low)),
          _mm256_maskload_ps(p + 8, _mm256_castps_si256(mask.high))};
}
SLIPSTREAM_INLINE void store_first(float* p, int count, F32x16 v) {
  const Mask16 mask = lane_range(0, count);
  _mm256_maskstore_ps(p, _mm256_castps_si256(mask.low), v.low);
  _mm256_maskstore_ps(p + 8, _mm256_castps_si256(mask.high), v.high);
}

SLIPSTREAM_INLINE F32x16 add(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
SLIPSTREAM_INLINE F32x16 sub(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
SLIPSTREAM_INLINE F32x16 mul(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
SLIPSTREAM_INLINE F32x16 div(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
SLIPSTREAM_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
SLIPSTREAM_INLINE F32x16 maximum(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
SLIPSTREAM_INLINE F32x16 minimum(F32x16 a, F32x16 b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}

SLIPSTREAM_INLINE Mask16 greater(F32x16 a, F32x16 b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_GT_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_GT_OQ)};
}
SLIPSTREAM_INLINE Mask16 at_least(F32x16 a, F32x16 b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_GE_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_GE_OQ)};
}
SLIPSTREAM_INLINE Mask16 equal(F32x16 a, F32x16 b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_EQ_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_EQ_OQ)};
}
SLIPSTREAM_INLINE Mask16 both(Mask16 a, Mask16 b) {
  return {_mm256_and_ps(a.low, b.low), _mm256_and_ps(a.high, b.high)};
}
SLIPSTREAM_INLINE uint32_t bits(Mask16 mask) {
  return uint32_t(_mm256_movemask_ps(mask.low)) | uint32_t(_mm256_movemask_ps(mask.high)) << 8;
}
SLIPSTREAM_INLINE F32x16 select(Mask16 mask, F32x16 yes, F32x16 no) {
  return {_mm256_blendv_ps(no.low, yes.low, mask.low),
          _mm256_blendv_ps(no.high, yes.high, mask.high)};
}

SLIPSTREAM_INLINE I32x16 integers(F32x16 v) {
  return {_mm256_castps_si256(v.low), _mm256_castps_si256(v.high)};
}
SLIPSTREAM_INLINE F32x16 floats(I32x16 v) {
  return {_mm256_castsi256_ps(v.low), _mm256_castsi256_ps(v.high)};
}
SLIPSTREAM_INLINE I32x16 set_int(uint32_t x) {
  return {_mm256_set1_epi32(int(x)), _mm256_set1_epi32(int(x))};
}
SLIPSTREAM_INLINE I32x16 add(I32x16 a, I32x16 b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
SLIPSTREAM_INLINE I32x16 sub(I32x16 a, I32x16 b) {
  return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}
SLIPSTREAM_INLINE I32x16 bit_and(I32x16 a, I32x16 b) {
  return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}
SLIPSTREAM_INLINE I32x16 bit_or(I32x16 a, I32x16 b) {
  return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}
SLIPSTREAM_INLINE I32x16 bit_xor(I32x16 a, I32x16 b) {
  return {_mm256_xor_si256(a.low, b.low), _mm256_xor_si256(a.high, b.high)};
}
template <int count>
SLIPSTREAM_INLINE I32x16 shift_left(I32x16 v) {
  return {_mm256_slli_epi32(v.low, count), _mm256_slli_epi32(v.high, count)};
}
template <int count>
SLIPSTREAM_INLINE I32x16 shift_right(I32x16 v) {
  return {_mm256_srli_epi32(v.low, count), _mm256_srli_epi32(v.high, count)};
}
template <int count>
SLIPSTREAM_INLINE I32x16 shift_right_signed(I32x16 v) {
  return {_mm256_srai_epi32(v.low, count), _mm256_srai_epi32(v.high, count)};
}
SLIPSTREAM_INLINE F32x16 to_float(I32x16 v) {
  return {_mm256_cvtepi32_ps(v.low), _mm256_cvtepi32_ps(v.high)};
}
SLIPSTREAM_INLINE void store(uint32_t* p, I32x16 v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v.low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), v.high);
}

SLIPSTREAM_INLINE F32x16 load_half(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
SLIPSTREAM_INLINE void store_half(uint16_t* p, F32x16 v) {
  constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v.low, nearest));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(v.high, nearest));
}

SLIPSTREAM_INLINE F32x16 set_half(const uint16_t* p) {
  const __m256 all = _mm256_cvtph_ps(_mm_set1_epi16(int16_t(*p)));
  return {all, all};
}
SLIPSTREAM_INLINE I32x16 load_bytes(const int8_t* p) {
  return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
}

SLIPSTREAM_INLINE void store_folded_once(float* p, F32x16 v) {
  _mm256_storeu_ps(p, _mm256_add_ps(v.low, v.high));
}
SLIPSTREAM_INLINE F32x16 fold_rows(const float* p) { return {fold_octet(p), fold_octet(p + 64)}; }
SLIPSTREAM_INLINE float fold(F32x16 v) { return fold_eight(_mm256_add_ps(v.low, v.high)); }
SLIPSTREAM_INLINE float fold_maximum(F32x16 v) {
  return fold_maximum_eight(_mm256_max_ps(v.low, v.high));
}

SLIPSTREAM_INLINE F64x16 zero_double() {
  const __m256d none = _mm256_setzero_pd();
  return {{none, none, none, none}};
}
SLIPSTREAM_INLINE F64x16 add_widened(F64x16 sum, F32x16 v) {
  const auto widen_low = [](__m256 x) { return _mm256_cvtps_pd(_mm256_castps256_ps128(x)); };
  const auto widen_high = [](__m256 x) { return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)); };
  return {{_mm256_add_pd(sum.quarter[0], widen_low(v.low)),
           _mm256_add_pd(sum.quarter[1], widen_high(v.low)),
           _mm256_add_pd(sum.quarter[2], widen_low(v.high)),
           _mm256_add_pd(sum.quarter[3], widen_high(v.high))}};
}
SLIPSTREAM_INLINE double fold(F64x16 v) {
  return fold_four(_mm256_add_pd(_mm256_add_pd(v.quarter[0], v.quarter[2]),
                                 _mm256_add_pd(v.quarter[1], v.quarter[3])));
}

SLIPSTREAM_INLINE U64x8 set_wide(uint64_t x) {
  return {_mm256_set1_epi64x(int64_t(x)), _mm256_set1_epi64x(int64_t(x))};
}
SLIPSTREAM_INLINE U64x8 count_up_from(uint64_t x) {
  const __m256i start = _mm256_set1_epi64x(int64_t(x));
  return {_mm256_add_epi64(start, _mm256_setr_epi64x(0, 1, 2, 3)),
          _mm256_add_epi64(start, _mm256_setr_epi64x(4, 5, 6, 7))};
}
SLIPSTREAM_INLINE U64x8 load_wide(const uint64_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 4))};
}
SLIPSTREAM_INLINE void store_wide(uint64_t* p, U64x8 v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v.low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 4), v.high);
}
SLIPSTREAM_INLINE U64x8 multiply_low_words(U64x8 a, U64x8 b) {
  return {_mm256_mul_epu32(a.low, b.low), _mm256_mul_epu32(a.high, b.high)};
}
SLIPSTREAM_INLINE U64x8 high_words(U64x8 v) {
  return {_mm256_srli_epi64(v.low, 32), _mm256_srli_epi64(v.high, 32)};
}
SLIPSTREAM_INLINE U64x8 bit_xor(U64x8 a, U64x8 b) {
  return {_mm256_xor_si256(a.low, b.low), _mm256_xor_si256(a.high, b.high)};
}
SLIPSTREAM_INLINE I32x16 low_words(U64x8 low, U64x8 high) {
  const auto narrow = [](U64x8 v) {
    const __m256 even = _mm256_shuffle_ps(_mm256_castsi256_ps(v.low), _mm256_castsi256_ps(v.high),
                                          _MM_SHUFFLE(2, 0, 2, 0));
    return _mm256_permute4x64_epi64(_mm256_castps_si256(even), _MM_SHUFFLE(3, 1, 2, 0));
  };
  return {narrow(low), narrow(high)};
}

}  // namespace slipstream::SLIPSTREAM_LEVEL
