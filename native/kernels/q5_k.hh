// Q5_K: 256 weights of five bits; see k_quants.hh.
#pragma once

struct Q5_K : KQuant<Q5_K> {
  using Codec = FiveBitCodes;
  static constexpr int kBlockBytes = 176;

  // Bit `group` of high byte j is bit 4 of weight j of the group.
  static LaneCodes decode(const uint8_t* block, int group) {
    const LaneCodes low = decode_group_nibbles(block + 48, group);
    return lane_codes_of_words([&](int i) {
      const uint64_t high = load_word(block + 16 + 8 * i) >> group & every_byte_of_word(1);
      return load_word(low.byte + 8 * i) | high << 4;
    });
  }

  // 31 * 127 * 16 passes int16, so group sums are taken about 16 and moved back as int32.
  template <class Isa>
  static INLINE typename Isa::Narrow start(const Activation& x, int group) {
    return Isa::narrow_start(x.offset16[group]);
  }

  template <class Isa>
  static INLINE typename Isa::Wide uncentre(typename Isa::Wide sum, const uint8_t* scales,
                                            const Activation& x) {
    const auto low = SixBitCodes::unpack<Isa, 0>(scales);
    const auto high = SixBitCodes::unpack<Isa, 1>(scales);
    return Isa::template add_shifted<4>(sum, weigh_groups<Isa>(low, high, x));
  }
};
