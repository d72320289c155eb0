// Sixteen lanes as compiler vectors, for any processor; the meaning of each operation.
#pragma once

struct Portable {
  static constexpr const char* kName = "portable";
  static constexpr int kMaxRows = 2;       // of one pass among several
  static constexpr int kMaxRowsAlone = 2;  // of a single pass
  static constexpr bool kSharesCodes = false;
  static constexpr int kMaxFloatRows = 2;
  static constexpr int kMaxPairedFloatRows = 2;  // with even and odd columns at once

  using Bytes = uint32_t __attribute__((vector_size(64)));   // four consecutive weights a lane
  using Wide = int32_t __attribute__((vector_size(64)));
  using Floats = float __attribute__((vector_size(64)));
  using Shorts = int16_t __attribute__((vector_size(64)));
  using Narrow = Wide;  // sums of a group of products
  using Scale = Wide;
  using Activation = uint32_t;  // four consecutive codes of one row

  static int32_t pack_offset(int first_pair, int second_pair) { return first_pair + second_pair; }

  static INLINE Bytes load(const uint8_t* p) {
    Bytes out;
    memcpy(&out, p, sizeof(out));
    return out;
  }
  static INLINE void prefetch(const uint8_t*) {}
  static INLINE Bytes mask(Bytes a, int bits) { return a & every_byte(bits); }
  template <int kShift>
  static INLINE Bytes shift_right(Bytes a) {
    return a >> kShift;
  }
  static INLINE Bytes or_masked(Bytes a, Bytes b, int bits) { return a | mask(b, bits); }

  static INLINE Activation broadcast(const void* p) {
    Activation dword;
    memcpy(&dword, p, 4);
    return dword;
  }
  static INLINE Narrow narrow_start(int32_t offset) { return Narrow{} + offset; }
  static INLINE Narrow narrow_zero() { return Narrow{}; }

  // Products of bytes fit int16; the two of every dword are added as int32.
  static INLINE Wide add_products(Wide sum, Bytes weights, Bytes factors) {
    const auto products = (Wide)((Shorts)weights * (Shorts)factors);
    return sum + (products << 16 >> 16) + (products >> 16);
  }
  static INLINE Bytes splat_pair(Activation x, int first, int second) {
    const auto code = [&](int i) { return static_cast<int8_t>(x >> 8 * i & 0xff); };
    return Bytes{} + (static_cast<uint16_t>(code(first)) |
                      static_cast<uint32_t>(static_cast<uint16_t>(code(second))) << 16);
  }
  static INLINE Narrow dot(Narrow sum, Bytes codes, Activation x) {
    sum = add_products(sum, codes & 0x00ff00ffu, splat_pair(x, 0, 2));
    return add_products(sum, codes >> 8 & 0x00ff00ffu, splat_pair(x, 1, 3));
  }
  static INLINE Wide widen(Narrow sum) { return sum; }
  static INLINE Wide wide_zero() { return Wide{}; }
  static INLINE Wide signed_start(int32_t) { return Wide{}; }
  static INLINE Bytes signed_weights(Bytes w) { return w; }
  static INLINE Wide dot_signed(Wide sum, Bytes w, Activation x) {
    sum = add_products(sum, (Bytes)((Shorts)w << 8 >> 8), splat_pair(x, 0, 2));
    return add_products(sum, (Bytes)((Shorts)w >> 8), splat_pair(x, 1, 3));
  }

  // Byte `index` of every dword.
  static INLINE Scale unsigned_scale(Bytes scales, int index) {
    return (Wide)(scales >> 8 * index & 0xffu);
  }
  static INLINE Scale signed_scale(Bytes scales, int index) {
    return (Wide)(scales << (24 - 8 * index)) >> 24;
  }
  static INLINE Wide add_scaled(Wide sum, Narrow group, Scale s) { return sum + group * s; }
  static INLINE Wide add_dword(Wide a, int32_t x) { return a + x; }
  // a + (b << kShift)
  template <int kShift>
  static INLINE Wide add_shifted(Wide a, Wide b) {
    return a + b * (1 << kShift);
  }
  // Bytes 0 and 2 of every dword times the two int16 of `pair`.
  static INLINE Wide add_even_bytes(Wide sum, Bytes bytes, Activation pair) {
    const auto low = static_cast<int16_t>(pair & 0xffff);
    const auto high = static_cast<int16_t>(pair >> 16);
    return sum + (Wide)(bytes & 0xffu) * low + (Wide)(bytes >> 16 & 0xffu) * high;
  }

  static INLINE Floats load_floats(const float* p) {
    Floats out;
    memcpy(&out, p, sizeof(out));
    return out;
  }
  static INLINE void store_floats(float* p, Floats v) { memcpy(p, &v, sizeof(v)); }
  static INLINE Floats splat(float x) { return x - Floats{}; }  // keeps the sign of -0
  static INLINE Floats load_half_floats(const uint8_t* p) {
    Floats out;
    ROLLED for (int i = 0; i < kStripRows; ++i) out[i] = half_float(p + 2 * i);
    return out;
  }
  static INLINE Floats load_upper_halves(const uint8_t* p) {
    Floats out;
    ROLLED for (int i = 0; i < kStripRows; ++i) out[i] = upper_half_float(p + 2 * i);
    return out;
  }
  static INLINE Floats to_floats(Wide a) { return __builtin_convertvector(a, Floats); }
  static INLINE Floats multiply(Floats a, Floats b) { return a * b; }
  // a * b + c and c - a * b, each with one rounding
  static INLINE Floats fma(Floats a, Floats b, Floats c) {
    ROLLED for (int i = 0; i < kStripRows; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
  }
  static INLINE Floats fnma(Floats a, Floats b, Floats c) { return fma(-a, b, c); }

  // shift_left: bits that cross into the next byte are for the caller to mask.
  template <int kShift>
  static INLINE Bytes shift_left(Bytes a) {
    return a << kShift;
  }
  // Every byte, 0..15, replaced by its entry of a table (16-byte aligned).
  static INLINE Bytes lookup(Bytes codes, const int8_t* table) {
    Bytes out{};
    ROLLED for (int i = 0; i < kStripRows; ++i) {
      uint32_t dword = 0;
      for (int j = 0; j < 32; j += 8) {
        dword |= uint32_t{static_cast<uint8_t>(table[codes[i] >> j & 15])} << j;
      }
      out[i] = dword;
    }
    return out;
  }
  // Each lane's 16-bit word w as w | w << kShift.
  template <int kShift>
  static INLINE Bytes load_words_twice(const uint8_t* p) {
    Bytes out{};
    ROLLED for (int i = 0; i < kStripRows; ++i) {
      uint16_t word;
      memcpy(&word, p + 2 * i, 2);
      out[i] = word;
    }
    return out | out << kShift;
  }
  // Bytes e as 2^(e - 127)
  static INLINE Floats load_powers(const uint8_t* p) {
    Floats out;
    ROLLED for (int i = 0; i < kStripRows; ++i) out[i] = power_float(p[i]);
    return out;
  }
  // Whether group sums of signed products take their scale with every pair (dot_signed_scaled).
  static constexpr bool kScalesPairs = false;
};
