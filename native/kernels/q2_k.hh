// Q2_K: 256 weights of two bits in sixteen groups of 16, each with a four-bit scale and minimum.
//
// GGUF block: 16 bytes (scale in the low nibble, minimum in the high one), 64 bytes of bit pairs,
// d (f16), dmin (f16). Value of a weight of group g: (d * scale[g]) * code - dmin * minimum[g].
//
// Strip block: 16 d, 16 dmin (halves); four dwords a row of scales and minimums; then the codes.
//
// f32 step of a block, in block order, with I = sum of scale * group sum and M = sum of minimum *
// sum of the group's activation codes, both exact:
//   sum = fma(fma(-M, dmin, I * d), activation scale, sum)
#pragma once

struct Q2_K {
  using Activation = ActivationBlock256;
  using Codec = TwoBitCodes;
  static constexpr int kBlockElements = 256;
  static constexpr int kBlockBytes = 84;
  static constexpr int kChunkBlocks = 2;
  static constexpr int kSharedGroupBytes = shared_group_bytes(2);
  static constexpr bool kSharesCodes = true;
  static constexpr int kCodesAt = kScaleLineBytes + 4 * kPlaneBytes;

  static INLINE size_t block_offset(int block) { return size_t{kBlockBytes} * kStripRows * block; }

  template <class Isa, class Source, int kRows>
  static void multiply_blocks(const uint8_t* strip, int first, int last, const Activation* x,
                              int step, float* tile, uint8_t* shared) {
    typename Isa::Floats sums[kRows];
    UNROLL for (int r = 0; r < kRows; ++r) sums[r] = Isa::load_floats(tile + r * kStripRows);
    for (int b = first; b < last; ++b, x += step) {
      const uint8_t* block = strip + block_offset(b);
      typename Isa::Wide integers[kRows];
      const auto source = Source(shared).at((b - first) * 8 * kSharedGroupBytes);
      sum_groups_of_16<Isa, Q2_K>(block + kScaleLineBytes, block + kCodesAt, source, x, integers);
      add_block<Isa>(block, x, integers, sums);
    }
    UNROLL for (int r = 0; r < kRows; ++r) Isa::store_floats(tile + r * kStripRows, sums[r]);
  }

  template <class Isa, int kQuarter>
  static INLINE typename Isa::Bytes scales(const uint8_t* header) {
    return Isa::mask(Isa::load(header + kQuarter * kPlaneBytes), 0x0f);
  }
  template <class Isa>
  static INLINE typename Isa::Scale scale(typename Isa::Bytes four, int index) {
    return Isa::unsigned_scale(four, index);
  }
  template <class Isa>
  static INLINE typename Isa::Narrow start(const Activation&, int) {
    return Isa::narrow_zero();
  }

  template <class Isa, int kRows>
  static INLINE void add_block(const uint8_t* block, const Activation* x,
                               const typename Isa::Wide (&integers)[kRows],
                               typename Isa::Floats (&sums)[kRows]) {
    typename Isa::Wide minimums[kRows];
    weigh_minimums<Isa>(block + kScaleLineBytes, x, minimums);
    const auto d = Isa::load_half_floats(block);
    const auto dmin = Isa::load_half_floats(block + kScaleLineBytes / 2);
    UNROLL for (int r = 0; r < kRows; ++r) {
      const auto scaled = Isa::multiply(Isa::to_floats(integers[r]), d);
      const auto value = Isa::fnma(Isa::to_floats(minimums[r]), dmin, scaled);
      sums[r] = Isa::fma(value, Isa::splat(x[r].scale), sums[r]);
    }
  }

  // Sum over the groups of minimum * sum of the activation codes.
  template <class Isa, int kRows>
  static INLINE void weigh_minimums(const uint8_t* header, const Activation* x,
                                    typename Isa::Wide (&out)[kRows]) {
    UNROLL for (int r = 0; r < kRows; ++r) out[r] = Isa::wide_zero();
    ROLLED for (int q = 0; q < 4; ++q) {
      const auto plane = Isa::load(header + q * kPlaneBytes);
      const auto even = Isa::mask(Isa::template shift_right<4>(plane), 0x0f);
      const auto odd = Isa::template shift_right<8>(even);
      UNROLL for (int r = 0; r < kRows; ++r) {
        const auto sum = Isa::add_even_bytes(out[r], even, Isa::broadcast(&x[r].sums16[2 * q]));
        out[r] = Isa::add_even_bytes(sum, odd, Isa::broadcast(&x[r].sums16[2 * q + 1]));
      }
    }
  }

  static LaneCodes decode(const uint8_t* block, int index) {
    return decode_bit_pairs(block + 16, index);
  }

  static void repack_block(const uint8_t* const (&rows)[kStripRows], int block, uint8_t* strip) {
    uint8_t* out = strip + block_offset(block);
    for (int lane = 0; lane < kStripRows; ++lane) {
      memcpy(out + lane * 2, rows[lane] + 80, 2);
      memcpy(out + kScaleLineBytes / 2 + lane * 2, rows[lane] + 82, 2);
      for (int q = 0; q < 4; ++q) {
        memcpy(out + kScaleLineBytes + q * kPlaneBytes + lane * 4, rows[lane] + 4 * q, 4);
      }
    }
    repack_codes<Q2_K>(rows, out + kCodesAt);
  }

  static void dequantise_source_block(const uint8_t* source, float* out) {
    for (int i = 0; i < 8; ++i) {
      write_values(half_float(source + 80), half_float(source + 82), source + 2 * i,
                   decode(source, i), out + 32 * i);
    }
  }

  static void dequantise_packed_block(const uint8_t* strip, int block, int lane, float* out) {
    const uint8_t* packed = strip + block_offset(block);
    const float d = half_float(packed + lane * 2);
    const float dmin = half_float(packed + kScaleLineBytes / 2 + lane * 2);
    for (int i = 0; i < 8; ++i) {
      const uint8_t* scales =
          packed + kScaleLineBytes + i / 2 * kPlaneBytes + lane * 4 + i % 2 * 2;
      const uint8_t* planes = packed + kCodesAt + i * Codec::kPlanes * kPlaneBytes;
      write_values(d, dmin, scales, unpack_lane<Codec>(planes, lane), out + 32 * i);
    }
  }

  // scales: two bytes, one per 16 weights
  static void write_values(float d, float dmin, const uint8_t* scales, const LaneCodes& codes,
                           float* out) {
    for (int i = 0; i < 32; ++i) {
      const float scale = d * static_cast<float>(scales[i / 16] & 15);
      const float minimum = dmin * static_cast<float>(scales[i / 16] >> 4);
      out[i] = scale * static_cast<float>(codes.byte[i]) - minimum;
    }
  }
};
