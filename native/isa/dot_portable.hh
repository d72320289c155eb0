// Plain loops over sixteen lanes, for any processor; the meaning of each operation.
#pragma once

struct Portable {
  static constexpr const char* kName = "portable";
  static constexpr int kMaxRows = 4;
  static constexpr int kMaxFloatRows = 4;
  static constexpr int kLanes = kStripRows;

  struct Bytes {  // four consecutive weights of each lane
    uint32_t lane[kLanes];
  };
  struct Wide {
    int32_t lane[kLanes];
  };
  using Narrow = Wide;  // sums of a group of products
  struct Floats {
    float lane[kLanes];
  };
  struct Activation {  // four consecutive codes of one row
    int8_t byte[4];
  };
  struct Scale {
    int32_t lane[kLanes];
  };

  static int32_t pack_offset(int first_pair, int second_pair) { return first_pair + second_pair; }

  template <class Out, class Function>
  static INLINE Out each(Function value) {
    Out out;
    for (int i = 0; i < kLanes; ++i) out.lane[i] = value(i);
    return out;
  }

  static INLINE Bytes load(const uint8_t* p) {
    Bytes out;
    memcpy(&out, p, sizeof(out));
    return out;
  }
  static INLINE void prefetch(const uint8_t*) {}
  static INLINE Bytes mask(Bytes a, int bits) {
    return each<Bytes>([&](int i) { return a.lane[i] & every_byte(bits); });
  }
  template <int kShift>
  static INLINE Bytes shift_right(Bytes a) {
    return each<Bytes>([&](int i) { return a.lane[i] >> kShift; });
  }
  static INLINE Bytes or_masked(Bytes a, Bytes b, int bits) {
    return each<Bytes>([&](int i) { return a.lane[i] | (b.lane[i] & every_byte(bits)); });
  }

  static INLINE Activation broadcast(const void* p) {
    Activation out;
    memcpy(&out, p, 4);
    return out;
  }
  static INLINE Narrow narrow_start(int32_t offset) {
    return each<Narrow>([&](int) { return offset; });
  }
  static INLINE Narrow narrow_zero() { return narrow_start(0); }
  static INLINE Narrow dot(Narrow sum, Bytes codes, Activation x) {
    for (int j = 0; j < 4; ++j) {
      const int16_t factor = x.byte[j];
      for (int i = 0; i < kLanes; ++i) {
        sum.lane[i] += static_cast<int16_t>(codes.lane[i] >> 8 * j & 0xff) * factor;
      }
    }
    return sum;
  }
  static INLINE Wide widen(Narrow sum) { return sum; }
  static INLINE Wide wide_zero() { return narrow_zero(); }
  static INLINE Wide signed_start(int32_t) { return narrow_zero(); }
  static INLINE Bytes signed_weights(Bytes w) { return w; }
  static INLINE Wide dot_signed(Wide sum, Bytes w, Activation x) {
    for (int j = 0; j < 4; ++j) {
      for (int i = 0; i < kLanes; ++i) {
        sum.lane[i] += static_cast<int8_t>(w.lane[i] >> 8 * j & 0xff) * x.byte[j];
      }
    }
    return sum;
  }

  // Byte `index` of every dword.
  static INLINE Scale unsigned_scale(Bytes scales, int index) {
    return each<Scale>([&](int i) { return static_cast<int32_t>(scales.lane[i] >> 8 * index & 0xff); });
  }
  static INLINE Scale signed_scale(Bytes scales, int index) {
    return each<Scale>([&](int i) {
      return static_cast<int32_t>(static_cast<int8_t>(scales.lane[i] >> 8 * index & 0xff));
    });
  }
  static INLINE Wide add_scaled(Wide sum, Narrow group, const Scale& s) {
    return each<Wide>([&](int i) { return sum.lane[i] + group.lane[i] * s.lane[i]; });
  }
  static INLINE Wide add_dword(Wide a, int32_t x) {
    return each<Wide>([&](int i) { return a.lane[i] + x; });
  }
  // a + (b << kShift)
  template <int kShift>
  static INLINE Wide add_shifted(Wide a, Wide b) {
    return each<Wide>([&](int i) { return a.lane[i] + b.lane[i] * (1 << kShift); });
  }
  // Bytes 0 and 2 of every dword times the two int16 of `pair`.
  static INLINE Wide add_even_bytes(Wide sum, Bytes bytes, Activation pair) {
    int16_t factor[2];
    memcpy(factor, &pair, 4);
    return each<Wide>([&](int i) {
      return sum.lane[i] + static_cast<int32_t>(bytes.lane[i] & 0xff) * factor[0] +
             static_cast<int32_t>(bytes.lane[i] >> 16 & 0xff) * factor[1];
    });
  }

  static INLINE Floats load_floats(const float* p) {
    Floats out;
    memcpy(&out, p, sizeof(out));
    return out;
  }
  static INLINE void store_floats(float* p, const Floats& v) { memcpy(p, &v, sizeof(v)); }
  static INLINE Floats splat(float x) {
    return each<Floats>([&](int) { return x; });
  }
  static INLINE Floats load_half_floats(const uint8_t* p) {
    return each<Floats>([&](int i) { return half_float(p + 2 * i); });
  }
  static INLINE Floats load_upper_halves(const uint8_t* p) {
    Floats out;
    for (int i = 0; i < kLanes; ++i) {
      uint16_t upper;
      memcpy(&upper, p + 2 * i, 2);
      const uint32_t bits = static_cast<uint32_t>(upper) << 16;
      memcpy(&out.lane[i], &bits, 4);
    }
    return out;
  }
  static INLINE Floats to_floats(const Wide& a) {
    return each<Floats>([&](int i) { return static_cast<float>(a.lane[i]); });
  }
  static INLINE Floats multiply(const Floats& a, const Floats& b) {
    return each<Floats>([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  // a * b + c and c - a * b, each with one rounding
  static INLINE Floats fma(const Floats& a, const Floats& b, const Floats& c) {
    return each<Floats>([&](int i) { return __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]); });
  }
  static INLINE Floats fnma(const Floats& a, const Floats& b, const Floats& c) {
    return each<Floats>([&](int i) { return __builtin_fmaf(-a.lane[i], b.lane[i], c.lane[i]); });
  }
};
