// AVX2 with the 256-bit VNNI instructions: group sums are int32.
//
// Needs -mavx2 -mfma -mf16c -mavxvnni. Included once, inside the level's namespace, after
// dot_avx2.hh.
#pragma once

struct AvxVnni : Avx2 {
  static constexpr const char* kName = "avx_vnni";
  static constexpr int kMaxRows = 4;       // of one pass among several
  static constexpr int kMaxRowsAlone = 6;  // of a single pass
  static constexpr int kMaxFloatRows = 6;

  using Narrow = Wide;  // sums of a group of products
  using Scale = Wide;

  static int32_t pack_offset(int first_pair, int second_pair) { return first_pair + second_pair; }

  static INLINE Narrow narrow_start(int32_t offset) {
    const __m256i v = _mm256_set1_epi32(offset);
    return {{v, v}};
  }
  static INLINE Narrow narrow_zero() { return wide_zero(); }
  static INLINE Narrow dot(Narrow sum, Bytes codes, Activation x) {
    for (int h = 0; h < 2; ++h) {
      sum.half[h] = _mm256_dpbusd_avx_epi32(sum.half[h], codes.half[h], x);
      KEEP_SUM(sum.half[h]);
    }
    return sum;
  }
  static INLINE Wide widen(Narrow sum) { return sum; }

  // Signed weights are taken as unsigned ones about 128.
  static INLINE Bytes signed_weights(Bytes w) {
    const __m256i sign = _mm256_set1_epi8(static_cast<char>(0x80));
    return {{_mm256_xor_si256(w.half[0], sign), _mm256_xor_si256(w.half[1], sign)}};
  }
  static INLINE Wide signed_start(int32_t offset128) { return narrow_start(offset128); }
  static INLINE Wide dot_signed(Wide sum, Bytes w, Activation x) { return dot(sum, w, x); }

  // Byte `index` of every dword.
  static INLINE Scale unsigned_scale(Bytes scales, int index) {
    const __m128i shift = _mm_cvtsi32_si128(8 * index);
    const __m256i low = _mm256_set1_epi32(0xff);
    return {{_mm256_and_si256(_mm256_srl_epi32(scales.half[0], shift), low),
             _mm256_and_si256(_mm256_srl_epi32(scales.half[1], shift), low)}};
  }
  static INLINE Scale signed_scale(Bytes scales, int index) {
    const __m128i shift = _mm_cvtsi32_si128(24 - 8 * index);
    return {{_mm256_srai_epi32(_mm256_sll_epi32(scales.half[0], shift), 24),
             _mm256_srai_epi32(_mm256_sll_epi32(scales.half[1], shift), 24)}};
  }
  static INLINE void store_scale(uint8_t* p, Scale s) { store(p, {{s.half[0], s.half[1]}}); }
  static INLINE Scale load_scale(const uint8_t* p) {
    const Bytes s = load(p);
    return {{s.half[0], s.half[1]}};
  }
  static INLINE Wide add_scaled(Wide sum, Narrow group, Scale s) {
    for (int h = 0; h < 2; ++h) {
      sum.half[h] = _mm256_add_epi32(sum.half[h], _mm256_mullo_epi32(group.half[h], s.half[h]));
    }
    return sum;
  }
  // Whether group sums of signed products take their scale with every pair (dot_signed_scaled).
  static constexpr bool kScalesPairs = false;
};
