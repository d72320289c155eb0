// AVX2: sixteen output lanes are two ymm vectors, so one activation broadcast serves both.
//
// Needs -mavx2 -mfma -mf16c. Included once, inside the level's namespace.
#pragma once

struct Avx2 {
  static constexpr const char* kName = "avx2";
  static constexpr int kMaxRows = 4;       // of one pass among several
  static constexpr int kMaxRowsAlone = 6;  // of a single pass
  static constexpr bool kSharesCodes = true;  // between the passes over a chunk
  static constexpr int kMaxFloatRows = 6;
  static constexpr int kMaxPairedFloatRows = 3;  // with even and odd columns at once

  struct Bytes {  // four consecutive weights of each lane
    __m256i half[2];
  };
  struct Narrow {  // int16 sums of pairs: weights 0, 1 and 2, 3 of every dword
    __m256i half[2];
  };
  struct Wide {  // int32
    __m256i half[2];
  };
  struct Floats {
    __m256 half[2];
  };
  using Activation = __m256i;  // one activation dword in all lanes

  // The zero point of a group: the two int16 sums start at minus their own share of it.
  static int32_t pack_offset(int first_pair, int second_pair) {
    return static_cast<int32_t>(static_cast<uint16_t>(first_pair) |
                                static_cast<uint32_t>(static_cast<uint16_t>(second_pair)) << 16);
  }

  static INLINE Bytes load(const uint8_t* p) {
    auto v = reinterpret_cast<const __m256i*>(p);
    return {{_mm256_load_si256(v), _mm256_load_si256(v + 1)}};
  }
  static INLINE void store(uint8_t* p, Bytes a) {
    auto v = reinterpret_cast<__m256i*>(p);
    _mm256_store_si256(v, a.half[0]);
    _mm256_store_si256(v + 1, a.half[1]);
  }
  static INLINE void prefetch(const uint8_t* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
  }
  static INLINE Bytes mask(Bytes a, int bits) {
    const __m256i m = _mm256_set1_epi8(static_cast<char>(bits));
    return {{_mm256_and_si256(a.half[0], m), _mm256_and_si256(a.half[1], m)}};
  }
  template <int kShift>
  static INLINE Bytes shift_right(Bytes a) {
    return {{_mm256_srli_epi16(a.half[0], kShift), _mm256_srli_epi16(a.half[1], kShift)}};
  }
  static INLINE Bytes or_masked(Bytes a, Bytes b, int bits) {
    const Bytes m = mask(b, bits);
    return {{_mm256_or_si256(a.half[0], m.half[0]), _mm256_or_si256(a.half[1], m.half[1])}};
  }

  static INLINE Activation broadcast(const void* p) {
    int32_t dword;
    memcpy(&dword, p, 4);
    return _mm256_set1_epi32(dword);
  }
  static INLINE Narrow narrow_start(int32_t offset) {
    const __m256i v = _mm256_set1_epi32(offset);
    return {{v, v}};
  }
  static INLINE Narrow narrow_zero() {
    const __m256i v = _mm256_setzero_si256();
    return {{v, v}};
  }
  // Sums wrap modulo 2^16; codecs.hh proves that the value at the end of a group fits.
  static INLINE Narrow dot(Narrow sum, Bytes codes, Activation x) {
    for (int h = 0; h < 2; ++h) {
      sum.half[h] = _mm256_add_epi16(sum.half[h], _mm256_maddubs_epi16(codes.half[h], x));
      KEEP_SUM(sum.half[h]);
    }
    return sum;
  }
  static INLINE Wide widen(Narrow sum) {
    const __m256i ones = _mm256_set1_epi16(1);
    return {{_mm256_madd_epi16(sum.half[0], ones), _mm256_madd_epi16(sum.half[1], ones)}};
  }

  static INLINE Bytes signed_weights(Bytes w) { return w; }
  static INLINE Wide wide_zero() {
    const __m256i v = _mm256_setzero_si256();
    return {{v, v}};
  }
  // |w| <= 128 and |x| <= 127, so a pair is at most 32512: maddubs does not saturate.
  static INLINE Wide dot_signed(Wide sum, Bytes w, Activation x) {
    const __m256i ones = _mm256_set1_epi16(1);
    for (int h = 0; h < 2; ++h) {
      const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w.half[h]),
                                                 _mm256_sign_epi8(x, w.half[h]));
      sum.half[h] = _mm256_add_epi32(sum.half[h], _mm256_madd_epi16(pairs, ones));
      KEEP_SUM(sum.half[h]);
    }
    return sum;
  }
  static INLINE Wide signed_start(int32_t) { return wide_zero(); }

  // A group's scale, ready to multiply a Narrow: byte `index` of every dword, as two int16.
  using Scale = Narrow;
  static INLINE Scale unsigned_scale(Bytes scales, int index) {
    return pick_bytes(scales, kLowByte[index]);
  }
  static INLINE Scale signed_scale(Bytes scales, int index) {
    Scale s = pick_bytes(scales, kHighByte[index]);
    return {{_mm256_srai_epi16(s.half[0], 8), _mm256_srai_epi16(s.half[1], 8)}};
  }
  static INLINE void store_scale(uint8_t* p, Scale s) { store(p, {{s.half[0], s.half[1]}}); }
  static INLINE Scale load_scale(const uint8_t* p) {
    const Bytes s = load(p);
    return {{s.half[0], s.half[1]}};
  }
  static INLINE Wide add_scaled(Wide sum, Narrow group, Scale s) {
    for (int h = 0; h < 2; ++h) {
      sum.half[h] =
          _mm256_add_epi32(sum.half[h], _mm256_madd_epi16(group.half[h], s.half[h]));
    }
    return sum;
  }
  static INLINE Wide add_dword(Wide a, int32_t x) {
    const __m256i v = _mm256_set1_epi32(x);
    return {{_mm256_add_epi32(a.half[0], v), _mm256_add_epi32(a.half[1], v)}};
  }
  // a + (b << kShift)
  template <int kShift>
  static INLINE Wide add_shifted(Wide a, Wide b) {
    return {{_mm256_add_epi32(a.half[0], _mm256_slli_epi32(b.half[0], kShift)),
             _mm256_add_epi32(a.half[1], _mm256_slli_epi32(b.half[1], kShift))}};
  }
  // Bytes 0 and 2 of every dword times the two int16 of `pair`.
  static INLINE Wide add_even_bytes(Wide sum, Bytes bytes, Activation pair) {
    const Bytes m = {{_mm256_and_si256(bytes.half[0], _mm256_set1_epi32(0x00ff00ff)),
                      _mm256_and_si256(bytes.half[1], _mm256_set1_epi32(0x00ff00ff))}};
    for (int h = 0; h < 2; ++h) {
      sum.half[h] = _mm256_add_epi32(sum.half[h], _mm256_madd_epi16(m.half[h], pair));
    }
    return sum;
  }

  static INLINE Floats load_floats(const float* p) {
    return {{_mm256_load_ps(p), _mm256_load_ps(p + 8)}};
  }
  static INLINE void store_floats(float* p, Floats v) {
    _mm256_store_ps(p, v.half[0]);
    _mm256_store_ps(p + 8, v.half[1]);
  }
  static INLINE Floats splat(float x) {
    const __m256 v = _mm256_set1_ps(x);
    return {{v, v}};
  }
  static INLINE Floats load_half_floats(const uint8_t* p) {
    auto v = reinterpret_cast<const __m128i*>(p);
    return {{_mm256_cvtph_ps(_mm_load_si128(v)), _mm256_cvtph_ps(_mm_load_si128(v + 1))}};
  }
  static INLINE Floats load_upper_halves(const uint8_t* p) {
    auto v = reinterpret_cast<const __m128i*>(p);
    Floats out;
    for (int h = 0; h < 2; ++h) {
      out.half[h] = _mm256_castsi256_ps(
          _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_load_si128(v + h)), 16));
    }
    return out;
  }
  static INLINE Floats to_floats(Wide a) {
    return {{_mm256_cvtepi32_ps(a.half[0]), _mm256_cvtepi32_ps(a.half[1])}};
  }
  static INLINE Floats add(Floats a, Floats b) {
    return {{_mm256_add_ps(a.half[0], b.half[0]), _mm256_add_ps(a.half[1], b.half[1])}};
  }
  static INLINE Floats multiply(Floats a, Floats b) {
    return {{_mm256_mul_ps(a.half[0], b.half[0]), _mm256_mul_ps(a.half[1], b.half[1])}};
  }
  // a * b + c and c - a * b, each with one rounding
  static INLINE Floats fma(Floats a, Floats b, Floats c) {
    return {{_mm256_fmadd_ps(a.half[0], b.half[0], c.half[0]),
             _mm256_fmadd_ps(a.half[1], b.half[1], c.half[1])}};
  }
  static INLINE Floats fnma(Floats a, Floats b, Floats c) {
    return {{_mm256_fnmadd_ps(a.half[0], b.half[0], c.half[0]),
             _mm256_fnmadd_ps(a.half[1], b.half[1], c.half[1])}};
  }

  // shift_left: bits that cross into the next byte are for the caller to mask.
  template <int kShift>
  static INLINE Bytes shift_left(Bytes a) {
    return {{_mm256_slli_epi16(a.half[0], kShift), _mm256_slli_epi16(a.half[1], kShift)}};
  }
  // Every byte, 0..15, replaced by its entry of a table (16-byte aligned).
  static INLINE Bytes lookup(Bytes codes, const int8_t* table) {
    const __m256i entries = _mm256_broadcastsi128_si256(
        _mm_load_si128(reinterpret_cast<const __m128i*>(table)));
    return {{_mm256_shuffle_epi8(entries, codes.half[0]),
             _mm256_shuffle_epi8(entries, codes.half[1])}};
  }
  // Each lane's 16-bit word w as w | w << kShift.
  template <int kShift>
  static INLINE Bytes load_words_twice(const uint8_t* p) {
    auto v = reinterpret_cast<const __m128i*>(p);
    Bytes out;
    for (int h = 0; h < 2; ++h) {
      const __m256i words = _mm256_cvtepu16_epi32(_mm_load_si128(v + h));
      out.half[h] = _mm256_or_si256(words, _mm256_slli_epi32(words, kShift));
    }
    return out;
  }
  // Bytes e as 2^(e - 127)
  static INLINE Floats load_powers(const uint8_t* p) {
    Floats out;
    for (int h = 0; h < 2; ++h) {
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8 * h));
      const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes), 23);
      out.half[h] =
          _mm256_castsi256_ps(_mm256_max_epi32(bits, _mm256_set1_epi32(0x00400000)));
    }
    return out;
  }
  // Group sums of signed products take their scale where pairs are widened: |w| <= 127, so a pair
  // is at most 32258, and the scales at most 128.
  static constexpr bool kScalesPairs = true;
  static INLINE Wide dot_signed_scaled(Wide sum, Bytes w, Activation x, Scale s) {
    for (int h = 0; h < 2; ++h) {
      const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w.half[h]),
                                                 _mm256_sign_epi8(x, w.half[h]));
      sum.half[h] = _mm256_add_epi32(sum.half[h], _mm256_madd_epi16(pairs, s.half[h]));
      KEEP_SUM(sum.half[h]);
    }
    return sum;
  }

 private:
  // Shuffles that put byte 0..3 of every dword into the low or the high byte of its two int16.
  static constexpr uint32_t kLowByte[4][4] = {
      {0x80008000, 0x80048004, 0x80088008, 0x800c800c},
      {0x80018001, 0x80058005, 0x80098009, 0x800d800d},
      {0x80028002, 0x80068006, 0x800a800a, 0x800e800e},
      {0x80038003, 0x80078007, 0x800b800b, 0x800f800f}};
  static constexpr uint32_t kHighByte[4][4] = {
      {0x00800080, 0x04800480, 0x08800880, 0x0c800c80},
      {0x01800180, 0x05800580, 0x09800980, 0x0d800d80},
      {0x02800280, 0x06800680, 0x0a800a80, 0x0e800e80},
      {0x03800380, 0x07800780, 0x0b800b80, 0x0f800f80}};

  static INLINE Scale pick_bytes(Bytes scales, const uint32_t* pattern) {
    const __m256i pick = _mm256_broadcastsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(pattern)));
    return {{_mm256_shuffle_epi8(scales.half[0], pick), _mm256_shuffle_epi8(scales.half[1], pick)}};
  }
};
