// Q5_0: 32 weights of five bits and one scale.
//
// GGUF block: scale d (f16), a word of 32 high bits, 16 bytes of low nibbles. Value of a weight:
// d * (code - 16).
#pragma once

// Bit j of the word of high bits at `word` is bit 4 of weight j.
INLINE LaneCodes decode_five_bits(const uint8_t* word, const uint8_t* nibbles) {
  uint32_t high;
  memcpy(&high, word, 4);
  LaneCodes out = decode_nibbles(nibbles);
  for (int j = 0; j < 32; ++j) out.byte[j] |= (high >> j & 1) << 4;
  return out;
}

struct Q5_0 : Block32<Q5_0> {
  using Codec = FiveBitCodes;
  static constexpr int kBlockBytes = 22;
  static constexpr bool kHasMinimum = false;

  static LaneCodes decode(const uint8_t* block) { return decode_five_bits(block + 2, block + 6); }

  static float value(float scale, float, uint8_t code) {
    return scale * static_cast<float>(code - 16);
  }

  template <class Isa, int kRows>
  static INLINE void integer_sums(const uint8_t* planes, const Activation* x,
                                  typename Isa::Wide (&out)[kRows]) {
    unsigned_sums<Isa>(
        planes, x, [](const Activation& row) { return Isa::narrow_start(row.offset16); }, out);
  }
};
