// BF16: the upper half of a binary32.
#pragma once

struct BF16 : FloatWeights<BF16> {
  static constexpr int kBlockBytes = 2;

  static float value(const uint8_t* p) { return upper_half_float(p); }

  template <class Isa>
  static INLINE typename Isa::Floats load(const uint8_t* p) {
    return Isa::load_upper_halves(p);
  }
};
