// F16: IEEE 754 binary16.
#pragma once

struct F16 : FloatWeights<F16> {
  static constexpr int kBlockBytes = 2;

  static float value(const uint8_t* p) { return half_float(p); }

  template <class Isa>
  static INLINE typename Isa::Floats load(const uint8_t* p) {
    return Isa::load_half_floats(p);
  }
};
