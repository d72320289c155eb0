// Q8_0: 32 weights of eight bits and one scale.
//
// GGUF block: scale d (f16), 32 signed bytes. Value of a weight: d * byte.
#pragma once

struct Q8_0 : Block32<Q8_0> {
  using Codec = EightBitCodes;
  static constexpr int kBlockBytes = 34;
  static constexpr bool kHasMinimum = false;

  static LaneCodes decode(const uint8_t* block) {
    LaneCodes out;
    memcpy(out.byte, block + 2, 32);
    return out;
  }

  static float value(float scale, float, uint8_t code) {
    return scale * static_cast<float>(static_cast<int8_t>(code));
  }

  template <class Isa, int kRows>
  static INLINE void integer_sums(const uint8_t* planes, PackedCodes, const Activation* x,
                                  typename Isa::Wide (&out)[kRows]) {
    UNROLL for (int r = 0; r < kRows; ++r) out[r] = Isa::signed_start(x[r].offset128);
    UNROLL for (int s = 0; s < kGroupSteps; ++s) {
      const auto weights = Isa::signed_weights(Isa::load(planes + s * kPlaneBytes));
      UNROLL for (int r = 0; r < kRows; ++r) {
        out[r] = Isa::dot_signed(out[r], weights, Isa::broadcast(x[r].codes + 4 * s));
      }
    }
  }
};
