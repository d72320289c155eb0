// Rows of keys and values as they are kept: 16 elements at a time as floats, and their writing.
#pragma once

#include "elementwise.hh"

namespace slipstream::SLIPSTREAM_LEVEL {

// A kind of row has an Element and load(row, i) of the elements i .. i + 15; i is a multiple of 16.
struct FloatRow {
  using Element = float;
  SLIPSTREAM_INLINE static F32x16 load(const float* row, int i) {
    return SLIPSTREAM_LEVEL::load(row + i);
  }
};

struct HalfRow {
  using Element = uint16_t;
  SLIPSTREAM_INLINE static F32x16 load(const uint16_t* row, int i) { return load_half(row + i); }
};

// A code times its scale is exact in a float: 8 and 11 significant bits.
struct Q8Row {
  using Element = uint16_t;
  SLIPSTREAM_INLINE static F32x16 load(const uint16_t* row, int i) {
    const uint16_t* block = row + i / kQ8BlockElements * kQ8BlockHalves;
    const auto* codes = reinterpret_cast<const int8_t*>(block + 1) + i % kQ8BlockElements;
    return mul(to_float(load_bytes(codes)), set_half(block));
  }
};

inline void load_row(const uint16_t* row, int n, float* out, HalfRow) {
  load_half_row(row, n, out);
}
inline void load_row(const uint16_t* row, int n, float* out, Q8Row) {
  for (int i = 0; i < n; i += kLanes) store(out + i, Q8Row::load(row, i));
}

SLIPSTREAM_INLINE F32x16 magnitude(const F32x16& x) {
  return floats(bit_and(integers(x), set_int(0x7fffffffu)));
}

// Adding 1.5 * 2^23 rounds to an integer, ties to even, that stands in the low bits.
SLIPSTREAM_INLINE void store_codes(const float* x, float inverse, uint8_t* codes) {
  uint32_t rounded[kLanes];
  store(rounded, integers(add(mul(load(x), set(inverse)), set(12582912.0f))));
  for (int i = 0; i < kLanes; ++i) codes[i] = uint8_t(rounded[i]);
}

inline void store_q8_block(const float* x, uint16_t* block) {
  const F32x16 low = load(x), high = load(x + kLanes);
  // x - x is 0 of finite numbers, NaN of others; so is the sum of all.
  const bool finite = fold(add(sub(low, low), sub(high, high))) == 0.0f;
  const float largest = fold_maximum(maximum(magnitude(low), magnitude(high)));
  uint16_t scale[kLanes];
  store_half(scale, set(finite ? largest / 127.0f : __builtin_nanf("")));
  block[0] = scale[0];
  const float inverse = finite && largest >= 0x1p-100f ? 127.0f / largest : 0.0f;
  auto* codes = reinterpret_cast<uint8_t*>(block + 1);
  if (inverse == 0.0f) {
    memset(codes, 0, kQ8BlockElements);
    return;
  }
  store_codes(x, inverse, codes);
  store_codes(x + kLanes, inverse, codes + kLanes);
}

inline void store_kv(KvType type, const float* x, int n, uint16_t* out) {
  if (type == KvType::f16) return store_half_row(x, n, out);
  for (int i = 0; i < n; i += kQ8BlockElements)
    store_q8_block(x + i, out + i / kQ8BlockElements * kQ8BlockHalves);
}

}  // namespace slipstream::SLIPSTREAM_LEVEL
