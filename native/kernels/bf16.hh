// BF16: the upper half of a binary32.
#pragma once

struct BF16 : FloatWeights<BF16> {
  static constexpr int kBlockBytes = 2;

  static float value(const uint8_t* p) {
    uint16_t upper;
    memcpy(&upper, p, 2);
    return bits_float(static_cast<int32_t>(static_cast<uint32_t>(upper) << 16));
  }

  template <class Isa>
  static INLINE typename Isa::Floats load(const uint8_t* p) {
    return Isa::load_upper_halves(p);
  }
};
