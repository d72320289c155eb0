// Q5_1: 32 weights of five bits, one scale and one minimum.
//
// GGUF block: scale d (f16), minimum m (f16), a word of 32 high bits, 16 bytes of low nibbles.
// Value of a weight: d * code + m.
#pragma once

struct Q5_1 : Block32<Q5_1> {
  using Codec = FiveBitCodes;
  static constexpr int kBlockBytes = 24;
  static constexpr bool kHasMinimum = true;

  static LaneCodes decode(const uint8_t* block) { return decode_five_bits(block + 4, block + 8); }

  static float value(float scale, float minimum, uint8_t code) {
    return scale * static_cast<float>(code) + minimum;
  }

  // 31 * 127 * 16 passes int16, so the sums are taken about 16 and moved back as int32.
  template <class Isa, class Source, int kRows>
  static INLINE void integer_sums(const uint8_t* planes, Source source, const Activation* x,
                                  typename Isa::Wide (&out)[kRows]) {
    const auto start = [](const Activation& row) { return Isa::narrow_start(row.offset16); };
    unsigned_sums<Isa>(planes, source, x, start, out);
    UNROLL for (int r = 0; r < kRows; ++r) out[r] = Isa::add_dword(out[r], x[r].sum16);
  }
};
