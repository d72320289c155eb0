// Q4_1: 32 weights of four bits, one scale and one minimum.
//
// GGUF block: scale d (f16), minimum m (f16), 16 bytes of nibbles. Value of a weight: d * code + m.
#pragma once

struct Q4_1 : Block32<Q4_1> {
  using Codec = FourBitCodes;
  static constexpr int kBlockBytes = 20;
  static constexpr bool kHasMinimum = true;

  static LaneCodes decode(const uint8_t* block) { return decode_nibbles(block + 4); }

  static float value(float scale, float minimum, uint8_t code) {
    return scale * static_cast<float>(code) + minimum;
  }

  template <class Isa, class Source, int kRows>
  static INLINE void integer_sums(const uint8_t* planes, Source source, const Activation* x,
                                  typename Isa::Wide (&out)[kRows]) {
    const auto start = [](const Activation&) { return Isa::narrow_zero(); };
    unsigned_sums<Isa>(planes, source, x, start, out);
  }
};
