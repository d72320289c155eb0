// Q4_K: 256 weights of four bits; see k_quants.hh.
#pragma once

// Bytes 32i .. 32i+31 hold group 2i in their low nibbles and group 2i + 1 in their high ones.
INLINE LaneCodes decode_group_nibbles(const uint8_t* packed, int group) {
  const uint8_t* bytes = packed + group / 2 * 32;
  return lane_codes_of_words([&](int i) {
    return load_word(bytes + 8 * i) >> group % 2 * 4 & every_byte_of_word(15);
  });
}

struct Q4_K : KQuant<Q4_K> {
  using Codec = FourBitCodes;
  static constexpr int kBlockBytes = 144;

  static LaneCodes decode(const uint8_t* block, int group) {
    return decode_group_nibbles(block + 16, group);
  }

  template <class Isa>
  static INLINE typename Isa::Narrow start(const Activation&, int) {
    return Isa::narrow_zero();
  }

  template <class Isa>
  static INLINE typename Isa::Wide uncentre(typename Isa::Wide sum, const uint8_t*,
                                            const Activation&) {
    return sum;
  }
};
