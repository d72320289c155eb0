// Arm NEON with the dot-product extension: sixteen output lanes are four vectors of int32.
//
// Needs FEAT_DotProd (-march=armv8.2-a+dotprod). Included once, inside the level's namespace.
#pragma once

// A function of one of the four vectors; inlined early, or the four would pass through memory.
#define QUARTER [=](int q) __attribute__((always_inline))

struct Neon {
  static constexpr const char* kName = "neon";
  // 24 sums, four vectors of codes, one of activations and a mask in 32 registers.
  static constexpr int kMaxRows = 6;       // of one pass among several
  static constexpr int kMaxRowsAlone = 6;  // of a single pass
  static constexpr bool kSharesCodes = true;  // between the passes over a chunk
  static constexpr int kMaxFloatRows = 6;
  static constexpr int kMaxPairedFloatRows = 3;  // with even and odd columns at once

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
    asm volatile("" : "+r"(p));  // a plane is read again for its other step, not kept
    return each<Bytes>(QUARTER { return vld1q_u8(p + 16 * q); });
  }
  static INLINE void store(uint8_t* p, Bytes a) {
    for (int q = 0; q < 4; ++q) vst1q_u8(p + 16 * q, a.quarter[q]);
  }
  static INLINE void prefetch(const uint8_t* p) { __builtin_prefetch(p); }
  static INLINE Bytes mask(Bytes a, int bits) {
    const uint8x16_t m = vdupq_n_u8(static_cast<uint8_t>(bits));
    return each<Bytes>(QUARTER { return vandq_u8(a.quarter[q], m); });
  }
  // Of 16-bit units, as on the other levels: bits move from a byte into its neighbour.
  template <int kShift>
  static INLINE Bytes shift_right(Bytes a) {
    return each<Bytes>(QUARTER {
      return vreinterpretq_u8_u16(vshrq_n_u16(vreinterpretq_u16_u8(a.quarter[q]), kShift));
    });
  }
  static INLINE Bytes or_masked(Bytes a, Bytes b, int bits) {
    const Bytes m = mask(b, bits);
    return each<Bytes>(QUARTER { return vorrq_u8(a.quarter[q], m.quarter[q]); });
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
    return each<Wide>(QUARTER {
      int32x4_t out = vdotq_lane_s32(sum.quarter[q], vreinterpretq_s8_u8(w.quarter[q]), x, 0);
      KEEP_SUM(out);
      return out;
    });
  }

  // Byte `index` of every dword.
  static INLINE Scale unsigned_scale(Bytes scales, int index) {
    const int32x4_t shift = vdupq_n_s32(-8 * index);
    const uint32x4_t low = vdupq_n_u32(0xff);
    return each<Scale>(QUARTER {
      const uint32x4_t dwords = vreinterpretq_u32_u8(scales.quarter[q]);
      return vreinterpretq_s32_u32(vandq_u32(vshlq_u32(dwords, shift), low));
    });
  }
  static INLINE Scale signed_scale(Bytes scales, int index) {
    const int32x4_t shift = vdupq_n_s32(24 - 8 * index);
    return each<Scale>(QUARTER {
      const int32x4_t dwords = vreinterpretq_s32_u8(scales.quarter[q]);
      return vshrq_n_s32(vshlq_s32(dwords, shift), 24);
    });
  }
  static INLINE void store_scale(uint8_t* p, Scale s) {
    for (int q = 0; q < 4; ++q) vst1q_u8(p + 16 * q, vreinterpretq_u8_s32(s.quarter[q]));
  }
  static INLINE Scale load_scale(const uint8_t* p) {
    return each<Scale>(QUARTER {
      return vreinterpretq_s32_u8(vld1q_u8(p + 16 * q));
    });
  }
  static INLINE Wide add_scaled(Wide sum, Narrow group, Scale s) {
    return each<Wide>(
        QUARTER { return vmlaq_s32(sum.quarter[q], group.quarter[q], s.quarter[q]); });
  }
  static INLINE Wide add_dword(Wide a, int32_t x) {
    return each<Wide>(QUARTER { return vaddq_s32(a.quarter[q], vdupq_n_s32(x)); });
  }
  // a + (b << kShift)
  template <int kShift>
  static INLINE Wide add_shifted(Wide a, Wide b) {
    return each<Wide>(
        QUARTER { return vaddq_s32(a.quarter[q], vshlq_n_s32(b.quarter[q], kShift)); });
  }
  // Bytes 0 and 2 of every dword times the two int16 of `pair`.
  static INLINE Wide add_even_bytes(Wide sum, Bytes bytes, Activation pair) {
    const int32x2_t factors = vget_low_s32(vmovl_s16(vreinterpret_s16_s8(pair)));
    const uint32x4_t low = vdupq_n_u32(0xff);
    return each<Wide>(QUARTER {
      const uint32x4_t dwords = vreinterpretq_u32_u8(bytes.quarter[q]);
      const int32x4_t first = vreinterpretq_s32_u32(vandq_u32(dwords, low));
      const int32x4_t second =
          vreinterpretq_s32_u32(vandq_u32(vshrq_n_u32(dwords, 16), low));
      return vmlaq_lane_s32(vmlaq_lane_s32(sum.quarter[q], first, factors, 0), second, factors, 1);
    });
  }

  static INLINE Floats load_floats(const float* p) {
    return each<Floats>(QUARTER { return vld1q_f32(p + 4 * q); });
  }
  static INLINE void store_floats(float* p, Floats v) {
    for (int q = 0; q < 4; ++q) vst1q_f32(p + 4 * q, v.quarter[q]);
  }
  static INLINE Floats splat(float x) {
    const float32x4_t v = vdupq_n_f32(x);
    return {{v, v, v, v}};
  }
  static INLINE Floats load_half_floats(const uint8_t* p) {
    return each<Floats>(QUARTER {
      return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + 8 * q)));
    });
  }
  static INLINE Floats load_upper_halves(const uint8_t* p) {
    return each<Floats>(QUARTER {
      return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p + 8 * q)), 16));
    });
  }
  static INLINE Floats to_floats(Wide a) {
    return each<Floats>(QUARTER { return vcvtq_f32_s32(a.quarter[q]); });
  }
  static INLINE Floats add(Floats a, Floats b) {
    return each<Floats>(QUARTER { return vaddq_f32(a.quarter[q], b.quarter[q]); });
  }
  static INLINE Floats multiply(Floats a, Floats b) {
    return each<Floats>(QUARTER { return vmulq_f32(a.quarter[q], b.quarter[q]); });
  }
  // a * b + c and c - a * b, each with one rounding
  static INLINE Floats fma(Floats a, Floats b, Floats c) {
    return each<Floats>(QUARTER { return vfmaq_f32(c.quarter[q], a.quarter[q], b.quarter[q]); });
  }
  static INLINE Floats fnma(Floats a, Floats b, Floats c) {
    return each<Floats>(QUARTER { return vfmsq_f32(c.quarter[q], a.quarter[q], b.quarter[q]); });
  }

  // shift_left: bits that cross into the next byte are for the caller to mask.
  template <int kShift>
  static INLINE Bytes shift_left(Bytes a) {
    return each<Bytes>(QUARTER {
      return vreinterpretq_u8_u16(vshlq_n_u16(vreinterpretq_u16_u8(a.quarter[q]), kShift));
    });
  }
  // Every byte, 0..15, replaced by its entry of a table (16-byte aligned).
  static INLINE Bytes lookup(Bytes codes, const int8_t* table) {
    const uint8x16_t entries = vreinterpretq_u8_s8(vld1q_s8(table));
    return each<Bytes>(QUARTER {
      return vqtbl1q_u8(entries, codes.quarter[q]);
    });
  }
  // Each lane's 16-bit word w as w | w << kShift.
  template <int kShift>
  static INLINE Bytes load_words_twice(const uint8_t* p) {
    return each<Bytes>(QUARTER {
      const uint32x4_t words = vmovl_u16(vreinterpret_u16_u8(vld1_u8(p + 8 * q)));
      return vreinterpretq_u8_u32(vorrq_u32(words, vshlq_n_u32(words, kShift)));
    });
  }
  // Bytes e as 2^(e - 127)
  static INLINE Floats load_powers(const uint8_t* p) {
    const uint8x16_t bytes = vld1q_u8(p);
    const uint16x8_t half[2] = {vmovl_u8(vget_low_u8(bytes)), vmovl_u8(vget_high_u8(bytes))};
    return each<Floats>(QUARTER {
      const uint16x8_t h = half[q / 2];
      const uint32x4_t e = vmovl_u16(q % 2 ? vget_high_u16(h) : vget_low_u16(h));
      return vreinterpretq_f32_u32(vmaxq_u32(vshlq_n_u32(e, 23), vdupq_n_u32(0x00400000)));
    });
  }
  // Whether group sums of signed products take their scale with every pair (dot_signed_scaled).
  static constexpr bool kScalesPairs = false;
};
