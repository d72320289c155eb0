// Q5_K: 256 weights of five bits; see k_quants.hh.
#pragma once

struct Q5_K : KQuant<Q5_K> {
  using Codec = FiveBitCodes;
  static constexpr int kBlockBytes = 176;

  // Bit `group` of high byte j is bit 4 of weight j of the group.
  static LaneCodes decode(const uint8_t* block, int group) {
    LaneCodes out = decode_group_nibbles(block + 48, group);
    for (int j = 0; j < 32; ++j) out.byte[j] |= (block[16 + j] >> group & 1) << 4;
    return out;
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
