// Q6_K: 256 weights of six bits in sixteen groups of 16, each with a signed eight-bit scale.
//
// GGUF block: 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 scales (int8), d (f16).
// Value of a weight of group g: (d * scale[g]) * (code - 32).
//
// Strip: units of two blocks: 16 d of each (64 bytes), then per block four dwords of scales a row
// and the codes of its groups in pairs. The last unit of an odd number lacks its second block.
//
// f32 step of a block, in block order, with I the exact sum of scale * group sum:
//   sum = fma(I * d, activation scale, sum)
#pragma once

struct Q6_K {
  using Activation = ActivationBlock256;
  using Codec = SixBitCodes;
  static constexpr int kBlockElements = 256;
  static constexpr int kBlockBytes = 210;
  static constexpr int kChunkBlocks = 2;
  static constexpr int kSharedGroupBytes = shared_group_bytes(2);
  static constexpr bool kSharesCodes = true;
  static constexpr int kScaleBytes = 16 * kStripRows;
  static constexpr size_t kBodyBytes = kScaleBytes + 8 * Codec::kPlanes * kPlaneBytes;

  static INLINE size_t unit_offset(int block) {
    return block / 2 * (kScaleLineBytes + 2 * kBodyBytes);
  }
  static INLINE size_t d_offset(int block) { return unit_offset(block) + block % 2 * 32; }
  static INLINE size_t body_offset(int block) {
    return unit_offset(block) + kScaleLineBytes + block % 2 * kBodyBytes;
  }
  // Two groups of 16: the first three planes hold the even one, the others the odd one.
  static INLINE size_t pair_offset(int pair) {
    return kScaleBytes + size_t(pair) * Codec::kPlanes * kPlaneBytes;
  }

  template <class Isa, class Source, int kRows>
  static void multiply_blocks(const uint8_t* strip, int first, int last, const Activation* x,
                              int step, float* tile, uint8_t* shared) {
    typename Isa::Floats sums[kRows];
    UNROLL for (int r = 0; r < kRows; ++r) sums[r] = Isa::load_floats(tile + r * kStripRows);
    for (int b = first; b < last; ++b, x += step) {
      typename Isa::Wide integers[kRows];
      const auto source = Source(shared).at((b - first) * 8 * kSharedGroupBytes);
      scaled_group_sums<Isa>(strip + body_offset(b), source, x, integers);
      const auto d = Isa::load_half_floats(strip + d_offset(b));
      UNROLL for (int r = 0; r < kRows; ++r) {
        const auto scaled = Isa::multiply(Isa::to_floats(integers[r]), d);
        sums[r] = Isa::fma(scaled, Isa::splat(x[r].scale), sums[r]);
      }
    }
    UNROLL for (int r = 0; r < kRows; ++r) Isa::store_floats(tile + r * kStripRows, sums[r]);
  }

  template <class Isa, class Source, int kRows>
  static INLINE void scaled_group_sums(const uint8_t* body, Source source, const Activation* x,
                                       typename Isa::Wide (&out)[kRows]) {
    UNROLL for (int r = 0; r < kRows; ++r) out[r] = Isa::wide_zero();
    ROLLED for (int pair = 0; pair < 8; ++pair) {
      const uint8_t* planes = body + pair_offset(pair);
      const auto scales = Isa::load(body + pair / 2 * kPlaneBytes);
      const auto group = source.at(pair * kSharedGroupBytes);
      prefetch_group<Isa, Codec>(planes);
      add_group<Isa, 0>(planes, group, scales, pair, x, out);
      add_group<Isa, 1>(planes, group, scales, pair, x, out);
    }
  }

  template <class Isa, int kOdd, class Source, int kRows>
  static INLINE void add_group(const uint8_t* planes, Source source, typename Isa::Bytes scales,
                               int pair, const Activation* x, typename Isa::Wide (&out)[kRows]) {
    typename Isa::Narrow sums[kRows];
    UNROLL for (int r = 0; r < kRows; ++r) {
      sums[r] = Isa::narrow_start(x[r].offset32[2 * pair + kOdd]);
    }
    add_steps<Isa, Codec, 4 * kOdd, 4>(planes, source, x->codes + 32 * pair, sizeof(Activation),
                                       sums);
    const auto scale = source.template scale<Isa, kOdd>(
        [&] { return Isa::signed_scale(scales, pair % 2 * 2 + kOdd); });
    UNROLL for (int r = 0; r < kRows; ++r) out[r] = Isa::add_scaled(out[r], sums[r], scale);
  }

  // Group 2 * pair and the next one, 32 weights. Each half of 128 weights owns 64 low bytes and 32
  // high bytes; its quarters take the low nibbles of low bytes 0-31 and 32-63, then the high ones,
  // and bits 2q, 2q + 1 of the high bytes.
  static LaneCodes decode(const uint8_t* block, int pair) {
    const int half = pair / 4, quarter = pair % 4;
    const uint8_t* low = block + half * 64 + quarter % 2 * 32;
    const uint8_t* high = block + 128 + half * 32;
    return lane_codes_of_words([&](int i) {
      const uint64_t nibbles = load_word(low + 8 * i) >> quarter / 2 * 4 & every_byte_of_word(15);
      const uint64_t pairs = load_word(high + 8 * i) >> 2 * quarter & every_byte_of_word(3);
      return nibbles | pairs << 4;
    });
  }

  static void repack_block(const uint8_t* const (&rows)[kStripRows], int block, uint8_t* strip) {
    uint8_t* body = strip + body_offset(block);
    for (int lane = 0; lane < kStripRows; ++lane) {
      const uint8_t* source = rows[lane];
      memcpy(strip + d_offset(block) + lane * 2, source + 208, 2);
      for (int q = 0; q < 4; ++q) {
        memcpy(body + q * kPlaneBytes + lane * 4, source + 192 + 4 * q, 4);
      }
    }
    for (int pair = 0; pair < 8; ++pair) {
      GroupCodes codes;
      for (int lane = 0; lane < kStripRows; ++lane) {
        set_lane(codes, lane, decode(rows[lane], pair));
      }
      Codec::pack(codes, body + pair_offset(pair));
    }
  }

  static void dequantise_source_block(const uint8_t* source, float* out) {
    for (int pair = 0; pair < 8; ++pair) {
      write_values(half_float(source + 208), source + 192 + 2 * pair, decode(source, pair),
                   out + 32 * pair);
    }
  }

  static void dequantise_packed_block(const uint8_t* strip, int block, int lane, float* out) {
    const uint8_t* body = strip + body_offset(block);
    const float d = half_float(strip + d_offset(block) + lane * 2);
    for (int pair = 0; pair < 8; ++pair) {
      const uint8_t* scales = body + pair / 2 * kPlaneBytes + lane * 4 + pair % 2 * 2;
      write_values(d, scales, unpack_lane<Codec>(body + pair_offset(pair), lane), out + 32 * pair);
    }
  }

  // scales: two signed bytes, one per 16 weights
  static void write_values(float d, const uint8_t* scales, const LaneCodes& codes, float* out) {
    for (int i = 0; i < 32; ++i) {
      const float scale = d * static_cast<float>(static_cast<int8_t>(scales[i / 16]));
      out[i] = scale * static_cast<float>(codes.byte[i] - 32);
    }
  }
};
