// 16 virtual lanes as four 128-bit registers (Arm NEON, in every 64-bit Arm processor).
// lanes_portable.hh defines the meaning of every function.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "inlining.hh"

namespace slipstream::SLIPSTREAM_LEVEL {

constexpr int kLanes = 16;

struct F32x16 {
  float32x4_t quarter[4];
};
struct I32x16 {
  uint32x4_t quarter[4];
};
struct Mask16 {
  uint32x4_t quarter[4];
};
struct F64x16 {
  float64x2_t eighth[8];
};
struct U64x8 {
  uint64x2_t quarter[4];
};

template <class Quad, class Formula>
SLIPSTREAM_INLINE Quad each(Formula formula) {
  return {{formula(0), formula(1), formula(2), formula(3)}};
}

SLIPSTREAM_INLINE F32x16 set(float x) {
  return each<F32x16>([=](int) { return vdupq_n_f32(x); });
}
SLIPSTREAM_INLINE F32x16 zero() { return set(0.0f); }
SLIPSTREAM_INLINE F32x16 load(const float* p) {
  return each<F32x16>([=](int q) { return vld1q_f32(p + 4 * q); });
}
SLIPSTREAM_INLINE void pin(F32x16& v) {
  asm("" : "+w"(v.quarter[0]), "+w"(v.quarter[1]), "+w"(v.quarter[2]), "+w"(v.quarter[3]));
}
SLIPSTREAM_INLINE void store(float* p, F32x16 v) {
  for (int q = 0; q < 4; ++q) vst1q_f32(p + 4 * q, v.quarter[q]);
}
SLIPSTREAM_INLINE F32x16 load_first(const float* p, int count) {
  if (count >= kLanes) return load(p);
  float lane[kLanes] = {};
  memcpy(lane, p, size_t(count) * sizeof(float));
  return load(lane);
}
SLIPSTREAM_INLINE void store_first(float* p, int count, F32x16 v) {
  if (count == kLanes) return store(p, v);
  float lane[kLanes];
  store(lane, v);
  memcpy(p, lane, size_t(count) * sizeof(float));
}

SLIPSTREAM_INLINE F32x16 add(F32x16 a, F32x16 b) {
  return each<F32x16>([=](int q) { return vaddq_f32(a.quarter[q], b.quarter[q]); });
}
SLIPSTREAM_INLINE F32x16 sub(F32x16 a, F32x16 b) {
  return each<F32x16>([=](int q) { return vsubq_f32(a.quarter[q], b.quarter[q]); });
}
SLIPSTREAM_INLINE F32x16 mul(F32x16 a, F32x16 b) {
  return each<F32x16>([=](int q) { return vmulq_f32(a.quarter[q], b.quarter[q]); });
}
SLIPSTREAM_INLINE F32x16 div(F32x16 a, F32x16 b) {
  return each<F32x16>([=](int q) { return vdivq_f32(a.quarter[q], b.quarter[q]); });
}
SLIPSTREAM_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return each<F32x16>([=](int q) { return vfmaq_f32(c.quarter[q], a.quarter[q], b.quarter[q]); });
}
// Not fmax and fmin, which return NaN when either operand is NaN.
SLIPSTREAM_INLINE float32x4_t larger_of(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcgtq_f32(a, b), a, b);
}
SLIPSTREAM_INLINE float32x4_t smaller_of(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcltq_f32(a, b), a, b);
}
SLIPSTREAM_INLINE F32x16 maximum(F32x16 a, F32x16 b) {
  return each<F32x16>([=](int q) { return larger_of(a.quarter[q], b.quarter[q]); });
}
SLIPSTREAM_INLINE F32x16 minimum(F32x16 a, F32x16 b) {
  return each<F32x16>([=](int q) { return smaller_of(a.quarter[q], b.quarter[q]); });
}

SLIPSTREAM_INLINE Mask16 greater(F32x16 a, F32x16 b) {
  return each<Mask16>([=](int q) { return vcgtq_f32(a.quarter[q], b.quarter[q]); });
}
SLIPSTREAM_INLINE Mask16 at_least(F32x16 a, F32x16 b) {
  return each<Mask16>([=](int q) { return vcgeq_f32(a.quarter[q], b.quarter[q]); });
}
SLIPSTREAM_INLINE Mask16 equal(F32x16 a, F32x16 b) {
  return each<Mask16>([=](int q) { return vceqq_f32(a.quarter[q], b.quarter[q]); });
}
SLIPSTREAM_INLINE Mask16 lane_range(int begin, int end) {
  const int32x4_t first = vdupq_n_s32(begin), last = vdupq_n_s32(end);
  return each<Mask16>([=](int q) {
    const int32x4_t lane = vaddq_s32(int32x4_t{0, 1, 2, 3}, vdupq_n_s32(4 * q));
    return vandq_u32(vcgeq_s32(lane, first), vcltq_s32(lane, last));
  });
}
SLIPSTREAM_INLINE Mask16 both(Mask16 a, Mask16 b) {
  return each<Mask16>([=](int q) { return vandq_u32(a.quarter[q], b.quarter[q]); });
}
SLIPSTREAM_INLINE uint32_t bits(Mask16 mask) {
  const auto weighed = [=](int q) {
    return vandq_u32(mask.quarter[q], vshlq_u32(uint32x4_t{1, 2, 4, 8}, vdupq_n_s32(4 * q)));
  };
  return vaddvq_u32(vorrq_u32(vorrq_u32(weighed(0), weighed(1)),
                              vorrq_u32(weighed(2), weighed(3))));
}
SLIPSTREAM_INLINE F32x16 select(Mask16 mask, F32x16 yes, F32x16 no) {
  return each<F32x16>(
      [=](int q) { return vbslq_f32(mask.quarter[q], yes.quarter[q], no.quarter[q]); });
}

SLIPSTREAM_INLINE I32x16 integers(F32x16 v) {
  return each<I32x16>([=](int q) { return vreinterpretq_u32_f32(v.quarter[q]); });
}
SLIPSTREAM_INLINE F32x16 floats(I32x16 v) {
  return each<F32x16>([=](int q) { return vreinterpretq_f32_u32(v.quarter[q]); });
}
SLIPSTREAM_INLINE I32x16 set_int(uint32_t x) {
  return each<I32x16>([=](int) { return vdupq_n_u32(x); });
}
SLIPSTREAM_INLINE I32x16 add(I32x16 a, I32x16 b) {
  return each<I32x16>([=](int q) { return vaddq_u32(a.quarter[q], b.quarter[q]); });
}
SLIPSTREAM_INLINE I32x16 sub(I32x16 a, I32x16 b) {
  return each<I32x16>([=](int q) { return vsubq_u32(a.quarter[q], b.quarter[q]); });
}
SLIPSTREAM_INLINE I32x16 bit_and(I32x16 a, I32x16 b) {
  return each<I32x16>([=](int q) { return vandq_u32(a.quarter[q], b.quarter[q]); });
}
SLIPSTREAM_INLINE I32x16 bit_or(I32x16 a, I32x16 b) {
  return each<I32x16>([=](int q) { return vorrq_u32(a.quarter[q], b.quarter[q]); });
}
SLIPSTREAM_INLINE I32x16 bit_xor(I32x16 a, I32x16 b) {
  return each<I32x16>([=](int q) { return veorq_u32(a.quarter[q], b.quarter[q]); });
}
template <int count>
SLIPSTREAM_INLINE I32x16 shift_left(I32x16 v) {
  return each<I32x16>([=](int q) { return vshlq_n_u32(v.quarter[q], count); });
}
template <int count>
SLIPSTREAM_INLINE I32x16 shift_right(I32x16 v) {
  return each<I32x16>([=](int q) { return vshrq_n_u32(v.quarter[q], count); });
}
template <int count>
SLIPSTREAM_INLINE I32x16 shift_right_signed(I32x16 v) {
  return each<I32x16>([=](int q) {
    return vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(v.quarter[q]), count));
  });
}
SLIPSTREAM_INLINE F32x16 to_float(I32x16 v) {
  return each<F32x16>([=](int q) { return vcvtq_f32_s32(vreinterpretq_s32_u32(v.quarter[q])); });
}
SLIPSTREAM_INLINE void store(uint32_t* p, I32x16 v) {
  for (int q = 0; q < 4; ++q) vst1q_u32(p + 4 * q, v.quarter[q]);
}

// fcvtl and fcvtn convert by IEEE 754 with the control register that FloatMode sets.
SLIPSTREAM_INLINE F32x16 load_half(const uint16_t* p) {
  return each<F32x16>(
      [=](int q) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * q))); });
}
SLIPSTREAM_INLINE void store_half(uint16_t* p, F32x16 v) {
  for (int q = 0; q < 4; ++q)
    vst1_u16(p + 4 * q, vreinterpret_u16_f16(vcvt_f16_f32(v.quarter[q])));
}

SLIPSTREAM_INLINE F32x16 set_half(const uint16_t* p) {
  const float32x4_t all = vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(*p)));
  return {{all, all, all, all}};
}
SLIPSTREAM_INLINE I32x16 load_bytes(const int8_t* p) {
  const int8x16_t bytes = vld1q_s8(p);
  const int16x8_t half[2] = {vmovl_s8(vget_low_s8(bytes)), vmovl_s8(vget_high_s8(bytes))};
  return each<I32x16>([=](int q) {
    const int16x8_t h = half[q / 2];
    return vreinterpretq_u32_s32(vmovl_s16(q % 2 ? vget_high_s16(h) : vget_low_s16(h)));
  });
}

SLIPSTREAM_INLINE void store_folded_once(float* p, F32x16 v) {
  vst1q_f32(p, vaddq_f32(v.quarter[0], v.quarter[2]));
  vst1q_f32(p + 4, vaddq_f32(v.quarter[1], v.quarter[3]));
}
// The folds of rows 0 to 3 of p[4][8].
SLIPSTREAM_INLINE float32x4_t fold_four_rows(const float* p) {
  const auto by_four = [=](int row) {
    return vaddq_f32(vld1q_f32(p + 8 * row), vld1q_f32(p + 8 * row + 4));
  };
  const auto by_two = [](float32x4_t a, float32x4_t b) {
    return vaddq_f32(vcombine_f32(vget_low_f32(a), vget_low_f32(b)),
                     vcombine_f32(vget_high_f32(a), vget_high_f32(b)));
  };
  return vpaddq_f32(by_two(by_four(0), by_four(1)), by_two(by_four(2), by_four(3)));
}
SLIPSTREAM_INLINE F32x16 fold_rows(const float* p) {
  return each<F32x16>([=](int q) { return fold_four_rows(p + 32 * q); });
}
SLIPSTREAM_INLINE float fold(F32x16 v) {
  const float32x4_t four = vaddq_f32(vaddq_f32(v.quarter[0], v.quarter[2]),
                                     vaddq_f32(v.quarter[1], v.quarter[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
SLIPSTREAM_INLINE float fold_maximum(F32x16 v) {
  const float32x4_t four = larger_of(larger_of(v.quarter[0], v.quarter[2]),
                                     larger_of(v.quarter[1], v.quarter[3]));
  const float32x4_t two = larger_of(four, vextq_f32(four, four, 2));
  return vgetq_lane_f32(larger_of(two, vextq_f32(two, two, 1)), 0);
}

SLIPSTREAM_INLINE F64x16 zero_double() {
  const float64x2_t none = vdupq_n_f64(0.0);
  return {{none, none, none, none, none, none, none, none}};
}
SLIPSTREAM_INLINE F64x16 add_widened(F64x16 sum, F32x16 v) {
  for (int q = 0; q < 4; ++q) {
    sum.eighth[2 * q] =
        vaddq_f64(sum.eighth[2 * q], vcvt_f64_f32(vget_low_f32(v.quarter[q])));
    sum.eighth[2 * q + 1] = vaddq_f64(sum.eighth[2 * q + 1], vcvt_high_f64_f32(v.quarter[q]));
  }
  return sum;
}
SLIPSTREAM_INLINE double fold(F64x16 v) {
  const auto once = [=](int i) { return vaddq_f64(v.eighth[i], v.eighth[i + 4]); };
  const float64x2_t two =
      vaddq_f64(vaddq_f64(once(0), once(2)), vaddq_f64(once(1), once(3)));
  return vgetq_lane_f64(two, 0) + vgetq_lane_f64(two, 1);
}

SLIPSTREAM_INLINE U64x8 set_wide(uint64_t x) {
  return each<U64x8>([=](int) { return vdupq_n_u64(x); });
}
SLIPSTREAM_INLINE U64x8 count_up_from(uint64_t x) {
  return each<U64x8>(
      [=](int q) { return vaddq_u64(vdupq_n_u64(x + 2 * uint64_t(q)), uint64x2_t{0, 1}); });
}
SLIPSTREAM_INLINE U64x8 load_wide(const uint64_t* p) {
  return each<U64x8>([=](int q) { return vld1q_u64(p + 2 * q); });
}
SLIPSTREAM_INLINE void store_wide(uint64_t* p, U64x8 v) {
  for (int q = 0; q < 4; ++q) vst1q_u64(p + 2 * q, v.quarter[q]);
}
SLIPSTREAM_INLINE U64x8 multiply_low_words(U64x8 a, U64x8 b) {
  return each<U64x8>(
      [=](int q) { return vmull_u32(vmovn_u64(a.quarter[q]), vmovn_u64(b.quarter[q])); });
}
SLIPSTREAM_INLINE U64x8 high_words(U64x8 v) {
  return each<U64x8>([=](int q) { return vshrq_n_u64(v.quarter[q], 32); });
}
SLIPSTREAM_INLINE U64x8 bit_xor(U64x8 a, U64x8 b) {
  return each<U64x8>([=](int q) { return veorq_u64(a.quarter[q], b.quarter[q]); });
}
SLIPSTREAM_INLINE I32x16 low_words(U64x8 low, U64x8 high) {
  return each<I32x16>([=](int q) {
    const U64x8& v = q < 2 ? low : high;
    return vcombine_u32(vmovn_u64(v.quarter[q % 2 * 2]), vmovn_u64(v.quarter[q % 2 * 2 + 1]));
  });
}

}  // namespace slipstream::SLIPSTREAM_LEVEL
