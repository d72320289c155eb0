// Weights of four bits that index a table of 16 signed bytes: IQ4_NL, IQ4_XS and MXFP4.
//
// Codes are packed as FourBitCodes. MXFP4's numbers are small, so its table holds them about 16 and
// its sums are those of codecs.hh:
//   MXFP4, 32 weights, offset 16         16 * 12 * 127 = 24384; a pair is at most 2 * 28 * 127
// IQ4's reach from -127 to 113: only a pair fits int16 (2 * 127 * 127 = 32258), so they take the
// products of signed bytes, which every level sums in int32.
#pragma once

alignas(16) constexpr int8_t kDoubledE2M1[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                 0, -1, -2, -3, -4, -6, -8, -12};
alignas(16) constexpr int8_t kDoubledE2M1About16[16] = {16, 17, 18, 19, 20, 22, 24, 28,
                                                        16, 15, 14, 13, 12, 10, 8,  4};
alignas(16) constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

struct E2M1Codes : FourBitCodes {
  template <class Isa, int kStep>
  static INLINE typename Isa::Bytes unpack(const uint8_t* planes) {
    return Isa::lookup(FourBitCodes::unpack<Isa, kStep>(planes), kDoubledE2M1About16);
  }
};

template <class Isa, int kStep>
INLINE typename Isa::Bytes iq4_weights(const uint8_t* planes) {
  const auto codes = FourBitCodes::unpack<Isa, kStep>(planes);
  return Isa::signed_weights(Isa::lookup(codes, kIq4Values));
}

// Adds steps kStep, kStep + 1, ... of a group to sums of signed products.
template <class Isa, int kStep = 0, int kRows>
INLINE void add_iq4_steps(const uint8_t* planes, const int8_t* x, size_t stride,
                          typename Isa::Wide (&sums)[kRows]) {
  if constexpr (kStep < kGroupSteps) {
    const auto weights = iq4_weights<Isa, kStep>(planes);
    UNROLL for (int r = 0; r < kRows; ++r) {
      sums[r] = Isa::dot_signed(sums[r], weights, Isa::broadcast(x + r * stride + kStep * 4));
    }
    add_iq4_steps<Isa, kStep + 1>(planes, x, stride, sums);
  }
}

// The same with every product taken times the group's scale.
template <class Isa, int kStep = 0, int kRows>
INLINE void add_scaled_iq4_steps(const uint8_t* planes, typename Isa::Scale scale, const int8_t* x,
                                 size_t stride, typename Isa::Wide (&sums)[kRows]) {
  if constexpr (kStep < kGroupSteps) {
    const auto weights = iq4_weights<Isa, kStep>(planes);
    UNROLL for (int r = 0; r < kRows; ++r) {
      const auto codes = Isa::broadcast(x + r * stride + kStep * 4);
      sums[r] = Isa::dot_signed_scaled(sums[r], weights, codes, scale);
    }
    add_scaled_iq4_steps<Isa, kStep + 1>(planes, scale, x, stride, sums);
  }
}
