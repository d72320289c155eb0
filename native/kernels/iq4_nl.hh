// IQ4_NL: 32 weights of four bits that index a table, and one scale.
//
// GGUF block: scale d (f16), 16 bytes of nibbles. Value of a weight: d * kIq4Values[code].
#pragma once

struct IQ4_NL : Block32<IQ4_NL> {
  using Codec = FourBitCodes;
  static constexpr int kBlockBytes = 18;
  static constexpr bool kHasMinimum = false;
  static constexpr bool kSharesCodes = false;

  static LaneCodes decode(const uint8_t* block) { return decode_nibbles(block + 2); }

  static float value(float scale, float, uint8_t code) {
    return scale * static_cast<float>(kIq4Values[code]);
  }

  template <class Isa, int kRows>
  static INLINE void integer_sums(const uint8_t* planes, PackedCodes, const Activation* x,
                                  typename Isa::Wide (&out)[kRows]) {
    UNROLL for (int r = 0; r < kRows; ++r) out[r] = Isa::signed_start(x[r].offset128);
    add_iq4_steps<Isa>(planes, x->codes, sizeof(Activation), out);
  }
};
