// AVX-512 with VNNI: sixteen output lanes are one zmm vector, group sums are int32.
//
// Needs -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni. Included once, inside the level's
// namespace.
#pragma once

struct Avx512 {
  static constexpr const char* kName = "avx512";
  static constexpr int kMaxRows = 8;       // of one pass among several
  static constexpr int kMaxRowsAlone = 8;  // of a single pass
  static constexpr bool kSharesCodes = false;
  static constexpr int kMaxFloatRows = 8;
  static constexpr int kMaxPairedFloatRows = 8;  // with even and odd columns at once

  using Bytes = __m512i;   // four consecutive weights of each lane
  using Narrow = __m512i;  // int32 sums of a group of products
  using Wide = __m512i;
  using Floats = __m512;
  using Scale = __m512i;
  using Activation = __m512i;  // one activation dword in all lanes

  static int32_t pack_offset(int first_pair, int second_pair) { return first_pair + second_pair; }

  static INLINE Bytes load(const uint8_t* p) { return _mm512_load_si512(p); }
  static INLINE void prefetch(const uint8_t* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
  }
  static INLINE Bytes mask(Bytes a, int bits) {
    return _mm512_and_si512(a, _mm512_set1_epi8(static_cast<char>(bits)));
  }
  template <int kShift>
  static INLINE Bytes shift_right(Bytes a) {
    return _mm512_srli_epi16(a, kShift);
  }
  static INLINE Bytes or_masked(Bytes a, Bytes b, int bits) {
    constexpr int kOrAnd = 0xf8;  // a | (b & c)
    return _mm512_ternarylogic_epi32(a, b, _mm512_set1_epi8(static_cast<char>(bits)), kOrAnd);
  }

  static INLINE Activation broadcast(const void* p) {
    int32_t dword;
    memcpy(&dword, p, 4);
    return _mm512_set1_epi32(dword);
  }
  static INLINE Narrow narrow_start(int32_t offset) { return _mm512_set1_epi32(offset); }
  static INLINE Narrow narrow_zero() { return _mm512_setzero_si512(); }
  static INLINE Narrow dot(Narrow sum, Bytes codes, Activation x) {
    return _mm512_dpbusd_epi32(sum, codes, x);
  }
  static INLINE Wide widen(Narrow sum) { return sum; }
  static INLINE Wide wide_zero() { return _mm512_setzero_si512(); }

  // Signed weights are taken as unsigned ones about 128.
  static INLINE Bytes signed_weights(Bytes w) {
    return _mm512_xor_si512(w, _mm512_set1_epi8(static_cast<char>(0x80)));
  }
  static INLINE Wide signed_start(int32_t offset128) { return _mm512_set1_epi32(offset128); }
  static INLINE Wide dot_signed(Wide sum, Bytes w, Activation x) {
    return _mm512_dpbusd_epi32(sum, w, x);
  }

  // Byte `index` of every dword.
  static INLINE Scale unsigned_scale(Bytes scales, int index) {
    const __m512i low = _mm512_srl_epi32(scales, _mm_cvtsi32_si128(8 * index));
    return _mm512_and_si512(low, _mm512_set1_epi32(0xff));
  }
  static INLINE Scale signed_scale(Bytes scales, int index) {
    return _mm512_srai_epi32(_mm512_sll_epi32(scales, _mm_cvtsi32_si128(24 - 8 * index)), 24);
  }
  static INLINE Wide add_scaled(Wide sum, Narrow group, Scale s) {
    return _mm512_add_epi32(sum, _mm512_mullo_epi32(group, s));
  }
  static INLINE Wide add_dword(Wide a, int32_t x) {
    return _mm512_add_epi32(a, _mm512_set1_epi32(x));
  }
  // a + (b << kShift)
  template <int kShift>
  static INLINE Wide add_shifted(Wide a, Wide b) {
    return _mm512_add_epi32(a, _mm512_slli_epi32(b, kShift));
  }
  // Bytes 0 and 2 of every dword times the two int16 of `pair`.
  static INLINE Wide add_even_bytes(Wide sum, Bytes bytes, Activation pair) {
    return _mm512_dpwssd_epi32(sum, _mm512_and_si512(bytes, _mm512_set1_epi32(0x00ff00ff)), pair);
  }

  static INLINE Floats load_floats(const float* p) { return _mm512_load_ps(p); }
  static INLINE void store_floats(float* p, Floats v) { _mm512_store_ps(p, v); }
  static INLINE Floats splat(float x) { return _mm512_set1_ps(x); }
  static INLINE Floats load_half_floats(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static INLINE Floats load_upper_halves(const uint8_t* p) {
    const __m256i halves = _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  static INLINE Floats to_floats(Wide a) { return _mm512_cvtepi32_ps(a); }
  static INLINE Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  // a * b + c and c - a * b, each with one rounding
  static INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static INLINE Floats fnma(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); }

  // shift_left: bits that cross into the next byte are for the caller to mask.
  template <int kShift>
  static INLINE Bytes shift_left(Bytes a) {
    return _mm512_slli_epi16(a, kShift);
  }
  // Every byte, 0..15, replaced by its entry of a table (16-byte aligned).
  static INLINE Bytes lookup(Bytes codes, const int8_t* table) {
    const __m128i entries = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), codes);
  }
  // Each lane's 16-bit word w as w | w << kShift.
  template <int kShift>
  static INLINE Bytes load_words_twice(const uint8_t* p) {
    const __m512i words =
        _mm512_cvtepu16_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_or_si512(words, _mm512_slli_epi32(words, kShift));
  }
  // Bytes e as 2^(e - 127)
  static INLINE Floats load_powers(const uint8_t* p) {
    const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(p));
    const __m512i bits = _mm512_slli_epi32(_mm512_cvtepu8_epi32(bytes), 23);
    return _mm512_castsi512_ps(_mm512_max_epi32(bits, _mm512_set1_epi32(0x00400000)));
  }
  // Whether group sums of signed products take their scale with every pair (dot_signed_scaled).
  static constexpr bool kScalesPairs = false;
};
