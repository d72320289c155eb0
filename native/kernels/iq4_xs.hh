// IQ4_XS: 256 weights of four bits that index IQ4_NL's table, in eight groups with six-bit scales.
//
// GGUF block: d (f16), a word of high scale bits, 4 bytes of low scale nibbles, 128 bytes of
// nibbles. Value of a weight of group g: (d * (scale[g] - 32)) * kIq4Values[code].
//
// Strip block: 16 d (halves), 16 words of scale bits, a dword of scale nibbles a row; then the
// codes of the eight groups. A scale less 32, in two's complement of six bits, has its upper four
// bits in a nibble (groups 0-3 low, 4-7 high) and its lower two in the word, at kPairShift[g].
//
// f32 step of a block, in block order, with I the exact sum of scale * group sum, taken times four
// (scales stand at the top of a byte). |4 I| <= 256 * 128 * 127 * 127 < 2^31.
//   sum = fma(I * d, activation scale, sum)
#pragma once

struct IQ4_XS {
  using Activation = ActivationBlock256;
  using Codec = FourBitCodes;
  static constexpr int kBlockElements = 256;
  static constexpr int kBlockBytes = 136;
  static constexpr int kChunkBlocks = 2;
  static constexpr int kSharedGroupBytes = shared_group_bytes(0);
  static constexpr bool kSharesCodes = false;
  static constexpr int kWordsAt = kScaleLineBytes / 2;
  static constexpr int kCodesAt = kScaleLineBytes + kPlaneBytes;
  static constexpr int kPairShift[8] = {2, 10, 6, 14, 0, 8, 4, 12};
  static constexpr float kUnit = 0.25f;

  static INLINE size_t block_offset(int block) { return size_t{kBlockBytes} * kStripRows * block; }
  static INLINE size_t group_offset(int group) {
    return kCodesAt + size_t(group) * Codec::kPlanes * kPlaneBytes;
  }

  template <class Isa, class Source, int kRows>
  static void multiply_blocks(const uint8_t* strip, int first, int last, const Activation* x,
                              int step, float* tile, uint8_t*) {
    typename Isa::Floats sums[kRows];
    UNROLL for (int r = 0; r < kRows; ++r) sums[r] = Isa::load_floats(tile + r * kStripRows);
    for (int b = first; b < last; ++b, x += step) {
      const uint8_t* block = strip + block_offset(b);
      typename Isa::Wide integers[kRows];
      scaled_group_sums<Isa>(block, x, integers);
      const auto d = Isa::load_half_floats(block);
      UNROLL for (int r = 0; r < kRows; ++r) {
        const auto scaled = Isa::multiply(Isa::to_floats(integers[r]), d);
        sums[r] = Isa::fma(scaled, Isa::splat(x[r].scale * kUnit), sums[r]);
      }
    }
    UNROLL for (int r = 0; r < kRows; ++r) Isa::store_floats(tile + r * kStripRows, sums[r]);
  }

  template <class Isa, int kRows>
  static INLINE void scaled_group_sums(const uint8_t* block, const Activation* x,
                                       typename Isa::Wide (&out)[kRows]) {
    UNROLL for (int r = 0; r < kRows; ++r) out[r] = Isa::wide_zero();
    const auto nibbles = Isa::load(block + kScaleLineBytes);
    const auto pairs = Isa::template load_words_twice<12>(block + kWordsAt);
    const auto low = Isa::mask(Isa::template shift_left<4>(nibbles), 0xf0);
    const auto high = Isa::mask(nibbles, 0xf0);
    add_four_groups<Isa, 0>(block, Isa::or_masked(low, pairs, 0x0c), x, out);
    add_four_groups<Isa, 4>(
        block, Isa::or_masked(high, Isa::template shift_left<2>(pairs), 0x0c), x, out);
  }

  template <class Isa, int kFirst, int kRows>
  static INLINE void add_four_groups(const uint8_t* block, typename Isa::Bytes scales,
                                     const Activation* x, typename Isa::Wide (&out)[kRows]) {
    ROLLED for (int g = 0; g < 4; ++g) {
      const uint8_t* planes = block + group_offset(kFirst + g);
      prefetch_group<Isa, Codec>(planes);
      add_group<Isa>(planes, Isa::signed_scale(scales, g), kFirst + g, x, out);
    }
  }

  // Levels that sum pairs of products in int16 apply the scale where they widen them.
  template <class Isa, int kRows>
  static INLINE void add_group(const uint8_t* planes, typename Isa::Scale scale, int group,
                               const Activation* x, typename Isa::Wide (&out)[kRows]) {
    const int8_t* codes = x->codes + group * 32;
    if constexpr (Isa::kScalesPairs) {
      add_scaled_iq4_steps<Isa>(planes, scale, codes, sizeof(Activation), out);
    } else {
      typename Isa::Wide sums[kRows];
      UNROLL for (int r = 0; r < kRows; ++r) {
        sums[r] = Isa::signed_start(8 * x[r].offset16[group]);
      }
      add_iq4_steps<Isa>(planes, codes, sizeof(Activation), sums);
      UNROLL for (int r = 0; r < kRows; ++r) out[r] = Isa::add_scaled(out[r], sums[r], scale);
    }
  }

  // Group `group` owns 16 bytes, laid out as a block of IQ4_NL.
  static LaneCodes decode(const uint8_t* block, int group) {
    return decode_nibbles(block + 8 + 16 * group);
  }

  // scale[group] - 32
  static int source_scale(const uint8_t* block, int group) {
    uint16_t word;
    memcpy(&word, block + 2, 2);
    const int low = block[4 + group / 2] >> group % 2 * 4 & 15;
    return (low | (word >> 2 * group & 3) << 4) - 32;
  }

  static void repack_scales(const uint8_t* source, uint8_t* out, int lane) {
    uint16_t word = 0;
    uint8_t nibbles[4] = {};
    for (int g = 0; g < 8; ++g) {
      const int code = source_scale(source, g) & 63;
      nibbles[g % 4] = static_cast<uint8_t>(nibbles[g % 4] | code >> 2 << g / 4 * 4);
      word = static_cast<uint16_t>(word | (code & 3) << kPairShift[g]);
    }
    memcpy(out + kWordsAt + lane * 2, &word, 2);
    memcpy(out + kScaleLineBytes + lane * 4, nibbles, 4);
  }

  static int packed_scale(const uint8_t* packed, int lane, int group) {
    uint16_t word;
    memcpy(&word, packed + kWordsAt + lane * 2, 2);
    const int nibble = packed[kScaleLineBytes + lane * 4 + group % 4] >> group / 4 * 4 & 15;
    return ((nibble << 2 | (word >> kPairShift[group] & 3)) ^ 32) - 32;
  }

  static void repack_block(const uint8_t* const (&rows)[kStripRows], int block, uint8_t* strip) {
    uint8_t* out = strip + block_offset(block);
    for (int lane = 0; lane < kStripRows; ++lane) {
      memcpy(out + lane * 2, rows[lane], 2);
      repack_scales(rows[lane], out, lane);
    }
    repack_codes<IQ4_XS>(rows, out + kCodesAt);
  }

  static void dequantise_source_block(const uint8_t* source, float* out) {
    for (int g = 0; g < 8; ++g) {
      write_values(half_float(source), source_scale(source, g), decode(source, g), out + 32 * g);
    }
  }

  static void dequantise_packed_block(const uint8_t* strip, int block, int lane, float* out) {
    const uint8_t* packed = strip + block_offset(block);
    for (int g = 0; g < 8; ++g) {
      write_values(half_float(packed + lane * 2), packed_scale(packed, lane, g),
                   unpack_lane<Codec>(packed + group_offset(g), lane), out + 32 * g);
    }
  }

  static void write_values(float d, int factor, const LaneCodes& codes, float* out) {
    const float scale = d * static_cast<float>(factor);
    for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(kIq4Values[codes.byte[i]]);
  }
};
