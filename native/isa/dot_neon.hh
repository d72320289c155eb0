// Arm NEON with the dot-product extension: sixteen output lanes are four vectors of int32.
//
// Needs FEAT_DotProd (-march=armv8.2-a+dotprod). Included once, inside the level's namespace.
#pragma once

struct Neon {
  static constexpr const char* kName = "neon";
  // 24 sums, four vectors of codes, one of activations and a mask in 32 registers.
  static constexpr int kMaxRows = 6;       // of one pass among several
  static constexpr int kMaxRowsAlone = 6;  // of a single pass
  static constexpr bool kSharesCodes = true;  // between the passes over a chunk
  static constexpr int kMaxFloatRows = 3;

  struct Bytes {  // four consecutive weights of each lane
    uint8x16_t quarter[4];
  };
  struct Wide {  // int32
    int32x4_t quarter[4];
  };
  struct Floats {
    float32x4_t quarter[4];
  };
  using Narrow = Wide;  // sums of a group of products
  using Scale = Wide;
  using Activation = int8x8_t;  // one activation dword in the low half

  static int32_t pack_offset(int first_pair, int second_pair) { return first_pair + second_pair; }

  template <class Quad, class Function>
  static INLINE Quad each(Function quarter) {
    return {{quarter(0), quarter(1), quarter(2), quarter(3)}};
  }

  static INLINE Bytes load(const uint8_t* p) {
    asm volatile("" : "+r"(p));
    return each<Bytes>([=](int q) __attribute__((always_inline)) { return vld1q_u8(p + 16 * q); });
  }
  static INLINE void store(uint8_t* p, Bytes a) {
    for (int q = 0; q < 4; ++q) vst1q_u8(p + 16 * q, a.quarter[q]);
  }
  static INLINE void prefetch(const uint8_t* p) { __builtin_prefetch(p); }
  static INLINE Bytes mask(Bytes a, int bits) {
    const uint8x16_t m = vdupq_n_u8(static_cast<uint8_t>(bits));
    return each<Bytes>([=](int q) __attribute__((always_inline)) { return vandq_u8(a.quarter[q], m); });
  }
  // Of 16-bit units, as on the other levels: bits move from a byte into its neighbour.
  template <int kShift>
  static INLINE Bytes shift_right(Bytes a) {
    return each<Bytes>([=](int q) __attribute__((always_inline)) {
      return vreinterpretq_u8_u16(vshrq_n_u16(vreinterpretq_u16_u8(a.quarter[q]), kShift));
    });
  }
  static INLINE Bytes or_masked(Bytes a, Bytes b, int bits) {
    const Bytes m = mask(b, bits);
    return each<Bytes>([=](int q) __attribute__((always_inline)) { return vorrq_u8(a.quarter[q], m.quarter[q]); });
  }

  static INLINE Activation broadcast(const void* p) {
    int32_t dword;
    memcpy(&dword, p, 4);
    return vreinterpret_s8_s32(int32x2_t{dword, 0});
  }
  static INLINE Narrow narrow_start(int32_t offset) {
    const int32x4_t v = vdupq_n_s32(offset);
    return {{v, v, v, v}};
  }
  static INLINE Narrow narrow_zero() { return narrow_start(0); }

  // Codes have at most seven bits, hence are themselves as signed bytes.
  static INLINE Narrow dot(Narrow sum, Bytes codes, Activation x) {
    return dot_signed(sum, codes, x);
  }
  static INLINE Wide widen(Narrow sum) { return sum; }

  static INLINE Bytes signed_weights(Bytes w) { return w; }
  static INLINE Wide wide_zero() { return narrow_zero(); }
  static INLINE Wide signed_start(int32_t) { return wide_zero(); }
  static INLINE Wide dot_signed(Wide sum, Bytes w, Activation x) {
    return each<Wide>([=](int q) __attribute__((always_inline)) {
      int32x4_t out = vdotq_lane_s32(sum.quarter[q], vreinterpretq_s8_u8(w.quarter[q]), x, 0);
      KEEP_SUM(out);
      return out;
    });
  }

  // Byte `index` of every dword.
  static INLINE Scale unsigned_scale(Bytes scales, int index) {
    const int32x4_t shift = vdupq_n_s32(-8 * index);
    const uint32x4_t low = vdupq_n_u32(0xff);
    return each<Scale>([=](int q) __attribute__((always_inline)) {
      const uint32x4_t dwords = vreinterpretq_u32_u8(scales.quarter[q]);
      return vreinterpretq_s32_u32(vandq_u32(vshlq_u32(dwords, shift), low));
    });
  }
  static INLINE Scale signed_scale(Bytes scales, int index) {
    const int32x4_t shift = vdupq_n_s32(24 - 8 * index);
    return each<Scale>([=](int q) __attribute__((always_inline)) {
      const int32x4_t dwords = vreinterpretq_s32_u8(scales.quarter[q]);
      return vshrq_n_s32(vshlq_s32(dwords, shift), 24);
    });
  }
  static INLINE Wide add_scaled(Wide sum, Narrow group, Scale s) {
    return each<Wide>(
        [=](int q) __attribute__((always_inline)) { return vmlaq_s32(sum.quarter[q], group.quarter[q], s.quarter[q]); });
  }
  static INLINE Wide add_dword(Wide a, int32_t x) {
    return each<Wide>([=](int q) __attribute__((always_inline)) { return vaddq_s32(a.quarter[q], vdupq_n_s32(x)); });
  }
  // a + (b << kShift)
  template <int kShift>
  static INLINE Wide add_shifted(Wide a, Wide b) {
    return each<Wide>(
        [=](int q) __attribute__((always_inline)) { return vaddq_s32(a.quarter[q], vshlq_n_s32(b.quarter[q], kShift)); });
  }
  // Bytes 0 and 2 of every dword times the two int16 of `pair`.
  static INLINE Wide add_even_bytes(Wide sum, Bytes bytes, Activation pair) {
    const int32x2_t factors = vget_low_s32(vmovl_s16(vreinterpret_s16_s8(pair)));
    const uint32x4_t low = vdupq_n_u32(0xff);
    return each<Wide>([=](int q) __attribute__((always_inline)) {
      const uint32x4_t dwords = vreinterpretq_u32_u8(bytes.quarter[q]);
      const int32x4_t first = vreinterpretq_s32_u32(vandq_u32(dwords, low));
      const int32x4_t second =
          vreinterpretq_s32_u32(vandq_u32(vshrq_n_u32(dwords, 16), low));
      return vmlaq_lane_s32(vmlaq_lane_s32(sum.quarter[q], first, factors, 0), second, factors, 1);
    });
  }

  static INLINE Floats load_floats(const float* p) {
    return each<Floats>([=](int q) __attribute__((always_inline)) { return vld1q_f32(p + 4 * q); });
  }
  static INLINE void store_floats(float* p, Floats v) {
    for (int q = 0; q < 4; ++q) vst1q_f32(p + 4 * q, v.quarter[q]);
  }
  static INLINE Floats splat(float x) {
    const float32x4_t v = vdupq_n_f32(x);
    return {{v, v, v, v}};
  }
  static INLINE Floats load_half_floats(const uint8_t* p) {
    return each<Floats>([=](int q) __attribute__((always_inline)) {
      return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + 8 * q)));
    });
  }
  static INLINE Floats load_upper_halves(const uint8_t* p) {
    return each<Floats>([=](int q) __attribute__((always_inline)) {
      return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p + 8 * q)), 16));
    });
  }
  static INLINE Floats to_floats(Wide a) {
    return each<Floats>([=](int q) __attribute__((always_inline)) { return vcvtq_f32_s32(a.quarter[q]); });
  }
  static INLINE Floats add(Floats a, Floats b) {
    return each<Floats>([=](int q) __attribute__((always_inline)) { return vaddq_f32(a.quarter[q], b.quarter[q]); });
  }
  static INLINE Floats multiply(Floats a, Floats b) {
    return each<Floats>([=](int q) __attribute__((always_inline)) { return vmulq_f32(a.quarter[q], b.quarter[q]); });
  }
  // a * b + c and c - a * b, each with one rounding
  static INLINE Floats fma(Floats a, Floats b, Floats c) {
    return each<Floats>(
        [=](int q) __attribute__((always_inline)) { return vfmaq_f32(c.quarter[q], a.quarter[q], b.quarter[q]); });
  }
  static INLINE Floats fnma(Floats a, Floats b, Floats c) {
    return each<Floats>(
        [=](int q) __attribute__((always_inline)) { return vfmsq_f32(c.quarter[q], a.quarter[q], b.quarter[q]); });
  }
};
