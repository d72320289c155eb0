// Q4_0: 32 weights of four bits and one scale.
//
// GGUF block: scale d (f16), 16 bytes of nibbles. Value of a weight: d * (code - 8).
#pragma once

struct Q4_0 : Block32<Q4_0> {
  using Codec = FourBitCodes;
  static constexpr int kBlockBytes = 18;
  static constexpr bool kHasMinimum = false;

  static LaneCodes decode(const uint8_t* block) { return decode_nibbles(block + 2); }

  static float value(float scale, float, uint8_t code) {
    return scale * static_cast<float>(code - 8);
  }

  template <class Isa, class Source, int kRows>
  static INLINE void integer_sums(const uint8_t* planes, Source source, const Activation* x,
                                  typename Isa::Wide (&out)[kRows]) {
    const auto start = [](const Activation& row) { return Isa::narrow_start(row.offset8); };
    unsigned_sums<Isa>(planes, source, x, start, out);
  }
};
