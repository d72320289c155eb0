// 16 virtual lanes in plain C++: the meaning every other level must reproduce bit for bit.
//
// maximum(a, b) is a > b ? a : b (b when either is NaN) and minimum(a, b) is a < b ? a : b. The
// fold adds lane i to lane i + 8, then i + 4, i + 2, i + 1. A fused operation is written as fma.
#pragma once

#include <cstdint>
#include <cstring>

#include "inlining.hh"

namespace slipstream::SLIPSTREAM_LEVEL {

constexpr int kLanes = 16;

struct F32x16 {
  float lane[kLanes];
};
struct I32x16 {
  uint32_t lane[kLanes];
};
struct Mask16 {
  uint32_t bits;
};
struct F64x16 {
  double lane[kLanes];
};
struct U64x8 {
  uint64_t lane[8];
};

template <class Vector, class Formula>
SLIPSTREAM_INLINE Vector each_lane(Formula formula) {
  Vector out;
  for (int i = 0; i < int(sizeof(out.lane) / sizeof(out.lane[0])); ++i) out.lane[i] = formula(i);
  return out;
}

template <class Formula>
SLIPSTREAM_INLINE Mask16 mask_where(Formula formula) {
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= uint32_t(formula(i)) << i;
  return {bits};
}

SLIPSTREAM_INLINE uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
SLIPSTREAM_INLINE float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

SLIPSTREAM_INLINE F32x16 set(float x) {
  return each_lane<F32x16>([=](int) { return x; });
}
SLIPSTREAM_INLINE F32x16 zero() { return set(0.0f); }
SLIPSTREAM_INLINE F32x16 load(const float* p) {
  return each_lane<F32x16>([=](int i) { return p[i]; });
}
SLIPSTREAM_INLINE F32x16 load_first(const float* p, int count) {
  return each_lane<F32x16>([=](int i) { return i < count ? p[i] : 0.0f; });
}
// Keeps a loaded value in registers where the compiler would load it again for its second use.
SLIPSTREAM_INLINE void pin(F32x16&) {}
SLIPSTREAM_INLINE void store(float* p, const F32x16& v) { memcpy(p, v.lane, sizeof v.lane); }
SLIPSTREAM_INLINE void store_first(float* p, int count, const F32x16& v) {
  memcpy(p, v.lane, size_t(count) * sizeof(float));
}

SLIPSTREAM_INLINE F32x16 add(const F32x16& a, const F32x16& b) {
  return each_lane<F32x16>([&](int i) { return a.lane[i] + b.lane[i]; });
}
SLIPSTREAM_INLINE F32x16 sub(const F32x16& a, const F32x16& b) {
  return each_lane<F32x16>([&](int i) { return a.lane[i] - b.lane[i]; });
}
SLIPSTREAM_INLINE F32x16 mul(const F32x16& a, const F32x16& b) {
  return each_lane<F32x16>([&](int i) { return a.lane[i] * b.lane[i]; });
}
SLIPSTREAM_INLINE F32x16 div(const F32x16& a, const F32x16& b) {
  return each_lane<F32x16>([&](int i) { return a.lane[i] / b.lane[i]; });
}
SLIPSTREAM_INLINE F32x16 fma(const F32x16& a, const F32x16& b, const F32x16& c) {
  return each_lane<F32x16>([&](int i) { return __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]); });
}
SLIPSTREAM_INLINE F32x16 maximum(const F32x16& a, const F32x16& b) {
  return each_lane<F32x16>([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
SLIPSTREAM_INLINE F32x16 minimum(const F32x16& a, const F32x16& b) {
  return each_lane<F32x16>([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}

SLIPSTREAM_INLINE Mask16 greater(const F32x16& a, const F32x16& b) {
  return mask_where([&](int i) { return a.lane[i] > b.lane[i]; });
}
SLIPSTREAM_INLINE Mask16 at_least(const F32x16& a, const F32x16& b) {
  return mask_where([&](int i) { return a.lane[i] >= b.lane[i]; });
}
SLIPSTREAM_INLINE Mask16 equal(const F32x16& a, const F32x16& b) {
  return mask_where([&](int i) { return a.lane[i] == b.lane[i]; });
}
SLIPSTREAM_INLINE Mask16 lane_range(int begin, int end) {
  return mask_where([=](int i) { return i >= begin && i < end; });
}
SLIPSTREAM_INLINE Mask16 both(Mask16 a, Mask16 b) { return {a.bits & b.bits}; }
SLIPSTREAM_INLINE uint32_t bits(Mask16 mask) { return mask.bits; }
SLIPSTREAM_INLINE F32x16 select(Mask16 mask, const F32x16& yes, const F32x16& no) {
  return each_lane<F32x16>([&](int i) { return mask.bits >> i & 1 ? yes.lane[i] : no.lane[i]; });
}

SLIPSTREAM_INLINE I32x16 integers(const F32x16& v) {
  return each_lane<I32x16>([&](int i) { return bits_of(v.lane[i]); });
}
SLIPSTREAM_INLINE F32x16 floats(const I32x16& v) {
  return each_lane<F32x16>([&](int i) { return float_of(v.lane[i]); });
}
SLIPSTREAM_INLINE I32x16 set_int(uint32_t x) {
  return each_lane<I32x16>([=](int) { return x; });
}
SLIPSTREAM_INLINE I32x16 add(const I32x16& a, const I32x16& b) {
  return each_lane<I32x16>([&](int i) { return a.lane[i] + b.lane[i]; });
}
SLIPSTREAM_INLINE I32x16 sub(const I32x16& a, const I32x16& b) {
  return each_lane<I32x16>([&](int i) { return a.lane[i] - b.lane[i]; });
}
SLIPSTREAM_INLINE I32x16 bit_and(const I32x16& a, const I32x16& b) {
  return each_lane<I32x16>([&](int i) { return a.lane[i] & b.lane[i]; });
}
SLIPSTREAM_INLINE I32x16 bit_or(const I32x16& a, const I32x16& b) {
  return each_lane<I32x16>([&](int i) { return a.lane[i] | b.lane[i]; });
}
SLIPSTREAM_INLINE I32x16 bit_xor(const I32x16& a, const I32x16& b) {
  return each_lane<I32x16>([&](int i) { return a.lane[i] ^ b.lane[i]; });
}
template <int count>
SLIPSTREAM_INLINE I32x16 shift_left(const I32x16& v) {
  return each_lane<I32x16>([&](int i) { return v.lane[i] << count; });
}
template <int count>
SLIPSTREAM_INLINE I32x16 shift_right(const I32x16& v) {
  return each_lane<I32x16>([&](int i) { return v.lane[i] >> count; });
}
template <int count>
SLIPSTREAM_INLINE I32x16 shift_right_signed(const I32x16& v) {
  return each_lane<I32x16>([&](int i) { return uint32_t(int32_t(v.lane[i]) >> count); });
}
SLIPSTREAM_INLINE F32x16 to_float(const I32x16& v) {
  return each_lane<F32x16>([&](int i) { return float(int32_t(v.lane[i])); });
}
SLIPSTREAM_INLINE void store(uint32_t* p, const I32x16& v) { memcpy(p, v.lane, sizeof v.lane); }

// IEEE 754 binary16 to binary32, exact; a signalling NaN becomes quiet.
SLIPSTREAM_INLINE float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude < 0x400u) return float_of(sign | bits_of(float(magnitude) * 0x1p-24f));
  if (magnitude < 0x7c00u) return float_of(sign | ((magnitude << 13) + 0x38000000u));
  const uint32_t quiet = magnitude > 0x7c00u ? 0x400000u : 0u;
  return float_of(sign | 0x7f800000u | quiet | magnitude << 13);
}

// Round to nearest, ties to even; a NaN keeps sign and top payload bits and becomes quiet.
SLIPSTREAM_INLINE uint16_t float_to_half(float x) {
  const uint32_t sign = bits_of(x) >> 16 & 0x8000u;
  const uint32_t magnitude = bits_of(x) & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);
  // Adding 1/2 makes one unit of a half subnormal (2^-24) the last bit of the sum.
  if (magnitude < 0x38800000u)
    return uint16_t(sign | (bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u));
  const uint32_t rounded = magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u);
  return uint16_t(sign | rounded >> 13);
}

SLIPSTREAM_INLINE F32x16 load_half(const uint16_t* p) {
  return each_lane<F32x16>([=](int i) { return half_to_float(p[i]); });
}
SLIPSTREAM_INLINE void store_half(uint16_t* p, const F32x16& v) {
  for (int i = 0; i < kLanes; ++i) p[i] = float_to_half(v.lane[i]);
}

// One half in all lanes.
SLIPSTREAM_INLINE F32x16 set_half(const uint16_t* p) { return set(half_to_float(*p)); }
// 16 signed bytes.
SLIPSTREAM_INLINE I32x16 load_bytes(const int8_t* p) {
  return each_lane<I32x16>([=](int i) { return uint32_t(int32_t(p[i])); });
}

// The first step of the fold: lane i + lane i + 8, eight floats at `p`.
SLIPSTREAM_INLINE void store_folded_once(float* p, const F32x16& v) {
  for (int i = 0; i < 8; ++i) p[i] = v.lane[i] + v.lane[i + 8];
}
SLIPSTREAM_INLINE float fold_eight(const float* p) {
  return ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]));
}
// The rest of the fold for 16 vectors at once: lane j is the fold of row j of p[16][8].
SLIPSTREAM_INLINE F32x16 fold_rows(const float* p) {
  return each_lane<F32x16>([=](int i) { return fold_eight(p + 8 * i); });
}
SLIPSTREAM_INLINE float fold(const F32x16& v) {
  float once[8];
  store_folded_once(once, v);
  return fold_eight(once);
}
SLIPSTREAM_INLINE float fold_maximum(const F32x16& v) {
  F32x16 best = v;
  for (int step = 8; step > 0; step /= 2)
    for (int i = 0; i < step; ++i)
      best.lane[i] = best.lane[i] > best.lane[i + step] ? best.lane[i] : best.lane[i + step];
  return best.lane[0];
}

SLIPSTREAM_INLINE F64x16 zero_double() {
  return each_lane<F64x16>([](int) { return 0.0; });
}
SLIPSTREAM_INLINE F64x16 add_widened(const F64x16& sum, const F32x16& v) {
  return each_lane<F64x16>([&](int i) { return sum.lane[i] + double(v.lane[i]); });
}
SLIPSTREAM_INLINE double fold(const F64x16& v) {
  double once[8];
  for (int i = 0; i < 8; ++i) once[i] = v.lane[i] + v.lane[i + 8];
  return ((once[0] + once[4]) + (once[2] + once[6])) + ((once[1] + once[5]) + (once[3] + once[7]));
}

SLIPSTREAM_INLINE U64x8 set_wide(uint64_t x) {
  return each_lane<U64x8>([=](int) { return x; });
}
SLIPSTREAM_INLINE U64x8 count_up_from(uint64_t x) {
  return each_lane<U64x8>([=](int i) { return x + uint64_t(i); });
}
SLIPSTREAM_INLINE U64x8 load_wide(const uint64_t* p) {
  return each_lane<U64x8>([=](int i) { return p[i]; });
}
SLIPSTREAM_INLINE void store_wide(uint64_t* p, const U64x8& v) { memcpy(p, v.lane, sizeof v.lane); }
SLIPSTREAM_INLINE U64x8 multiply_low_words(const U64x8& a, const U64x8& b) {
  return each_lane<U64x8>(
      [&](int i) { return uint64_t(uint32_t(a.lane[i])) * uint32_t(b.lane[i]); });
}
SLIPSTREAM_INLINE U64x8 high_words(const U64x8& v) {
  return each_lane<U64x8>([&](int i) { return v.lane[i] >> 32; });
}
SLIPSTREAM_INLINE U64x8 bit_xor(const U64x8& a, const U64x8& b) {
  return each_lane<U64x8>([&](int i) { return a.lane[i] ^ b.lane[i]; });
}
SLIPSTREAM_INLINE I32x16 low_words(const U64x8& low, const U64x8& high) {
  return each_lane<I32x16>([&](int i) { return uint32_t(i < 8 ? low.lane[i] : high.lane[i - 8]); });
}

}  // namespace slipstream::SLIPSTREAM_LEVEL
