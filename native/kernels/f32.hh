// F32: IEEE 754 binary32.
#pragma once

struct F32 : FloatWeights<F32> {
  static constexpr int kBlockBytes = 4;

  static float value(const uint8_t* p) {
    float x;
    memcpy(&x, p, 4);
    return x;
  }

  template <class Isa>
  static INLINE typename Isa::Floats load(const uint8_t* p) {
    return Isa::load_floats(reinterpret_cast<const float*>(p));
  }
};
