// Q5_0: 32 weights of five bits and one scale.
//
// GGUF block: scale d (f16), a word of 32 high bits, 16 bytes of low nibbles. Value of a weight:
// d * (code - 16).
#pragma once

// Bit j of `bits` in the lowest bit of byte j. Seven bits times 1 + 2^7 + 2^14 + ... do not carry.
INLINE uint64_t spread_bits(uint64_t bits) {
  const uint64_t spread = (bits & 0x7f) * 0x0002040810204081u & every_byte_of_word(1);
  return spread | bits >> 7 << 56;
}

// Bit j of the word of high bits is bit 4 of weight j.
INLINE LaneCodes decode_five_bits(const uint8_t* high_bits, const uint8_t* nibbles) {
  const LaneCodes low = decode_nibbles(nibbles);
  return lane_codes_of_words([&](int i) {
    return load_word(low.byte + 8 * i) | spread_bits(high_bits[i]) << 4;
  });
}

struct Q5_0 : Block32<Q5_0> {
  using Codec = FiveBitCodes;
  static constexpr int kBlockBytes = 22;
  static constexpr bool kHasMinimum = false;

  static LaneCodes decode(const uint8_t* block) { return decode_five_bits(block + 2, block + 6); }

  static float value(float scale, float, uint8_t code) {
    return scale * static_cast<float>(code - 16);
  }

  template <class Isa, class Source, int kRows>
  static INLINE void integer_sums(const uint8_t* planes, Source source, const Activation* x,
                                  typename Isa::Wide (&out)[kRows]) {
    const auto start = [](const Activation& row) { return Isa::narrow_start(row.offset16); };
    unsigned_sums<Isa>(planes, source, x, start, out);
  }
};
