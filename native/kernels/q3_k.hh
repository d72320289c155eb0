// Q3_K: 256 weights of three bits in sixteen groups of 16, each with a six-bit scale about 32.
//
// GGUF block: 32 bytes of high bits, 64 bytes of low bit pairs, 12 bytes of scales, d (f16). Value
// of a weight of group g: (d * (scale[g] - 32)) * (code - 4).
//
// Strip: units of two blocks: 16 d of each (64 bytes), then per block the scales as the four steps
// of SixBitCodes in three planes (in two's complement of six bits) and the codes of its groups in
// pairs. The last unit of an odd number lacks its second block.
//
// f32 step of a block, in block order, with I the exact sum of scale * group sum. It is taken
// times 32: scales are shifted to the top of a byte, codes come out times eight.
//   sum = fma(I * d, activation scale, sum)
#pragma once

struct Q3_K {
  using Activation = ActivationBlock256;
  using Codec = ThreeBitCodes;
  static constexpr int kBlockElements = 256;
  static constexpr int kBlockBytes = 110;
  static constexpr int kChunkBlocks = 2;
  static constexpr int kSharedGroupBytes = shared_group_bytes(2);
  static constexpr bool kSharesCodes = true;
  static constexpr int kCodesAt = 3 * kPlaneBytes;
  static constexpr size_t kBodyBytes = kCodesAt + 8 * Codec::kPlanes * kPlaneBytes;
  static constexpr float kUnit = 0x1p-5f;

  static INLINE size_t unit_offset(int block) {
    return block / 2 * (kScaleLineBytes + 2 * kBodyBytes);
  }
  static INLINE size_t d_offset(int block) { return unit_offset(block) + block % 2 * 32; }
  static INLINE size_t body_offset(int block) {
    return unit_offset(block) + kScaleLineBytes + block % 2 * kBodyBytes;
  }

  template <class Isa, class Source, int kRows>
  static void multiply_blocks(const uint8_t* strip, int first, int last, const Activation* x,
                              int step, float* tile, uint8_t* shared) {
    typename Isa::Floats sums[kRows];
    UNROLL for (int r = 0; r < kRows; ++r) sums[r] = Isa::load_floats(tile + r * kStripRows);
    for (int b = first; b < last; ++b, x += step) {
      const uint8_t* body = strip + body_offset(b);
      typename Isa::Wide integers[kRows];
      const auto source = Source(shared).at((b - first) * 8 * kSharedGroupBytes);
      sum_groups_of_16<Isa, Q3_K>(body, body + kCodesAt, source, x, integers);
      const auto d = Isa::load_half_floats(strip + d_offset(b));
      UNROLL for (int r = 0; r < kRows; ++r) {
        const auto scaled = Isa::multiply(Isa::to_floats(integers[r]), d);
        sums[r] = Isa::fma(scaled, Isa::splat(x[r].scale * kUnit), sums[r]);
      }
    }
    UNROLL for (int r = 0; r < kRows; ++r) Isa::store_floats(tile + r * kStripRows, sums[r]);
  }

  template <class Isa, int kQuarter>
  static INLINE typename Isa::Bytes scales(const uint8_t* planes) {
    return Isa::template shift_left<2>(SixBitCodes::unpack<Isa, kQuarter>(planes));
  }
  template <class Isa>
  static INLINE typename Isa::Scale scale(typename Isa::Bytes four, int index) {
    return Isa::signed_scale(four, index);
  }
  template <class Isa>
  static INLINE typename Isa::Narrow start(const Activation& x, int group) {
    return Isa::narrow_start(x.offset32[group]);
  }

  // Bit `index` of high byte j is bit 2 of weight j of 32.
  static LaneCodes decode(const uint8_t* block, int index) {
    const LaneCodes low = decode_bit_pairs(block + 32, index);
    return lane_codes_of_words([&](int i) {
      const uint64_t high = load_word(block + 8 * i) >> index & every_byte_of_word(1);
      return load_word(low.byte + 8 * i) | high << 2;
    });
  }

  // Scales 0-15 less 32, in two's complement of six bits. Bytes 0-7 hold the low nibbles of scales
  // 0-7 and, above them, 8-15; bits 2i and 2i + 1 of bytes 8-11 the top of scales 4i .. 4i + 3.
  static LaneCodes decode_scales(const uint8_t* packed) {
    LaneCodes out{};
    for (int i = 0; i < 4; ++i) {
      const uint32_t low = OneLane::load(packed + i % 2 * 4) >> i / 2 * 4 & every_byte(15);
      const uint32_t high = OneLane::load(packed + 8) >> 2 * i & every_byte(3);
      const uint32_t dword = (low | high << 4) ^ every_byte(32);
      memcpy(out.byte + 4 * i, &dword, 4);
    }
    return out;
  }

  static void repack_block(const uint8_t* const (&rows)[kStripRows], int block, uint8_t* strip) {
    uint8_t* body = strip + body_offset(block);
    GroupCodes scales;
    for (int lane = 0; lane < kStripRows; ++lane) {
      memcpy(strip + d_offset(block) + lane * 2, rows[lane] + 108, 2);
      set_lane(scales, lane, decode_scales(rows[lane] + 96));
    }
    SixBitCodes::pack_planes(scales, 3, body);
    repack_codes<Q3_K>(rows, body + kCodesAt);
  }

  static void dequantise_source_block(const uint8_t* source, float* out) {
    const LaneCodes scales = decode_scales(source + 96);
    for (int i = 0; i < 8; ++i) {
      write_values(half_float(source + 108), scales.byte + 2 * i, decode(source, i), 1,
                   out + 32 * i);
    }
  }

  static void dequantise_packed_block(const uint8_t* strip, int block, int lane, float* out) {
    const uint8_t* body = strip + body_offset(block);
    const float d = half_float(strip + d_offset(block) + lane * 2);
    const LaneCodes scales = unpack_lane<SixBitCodes, 4>(body, lane);
    for (int i = 0; i < 8; ++i) {
      const uint8_t* planes = body + kCodesAt + i * Codec::kPlanes * kPlaneBytes;
      write_values(d, scales.byte + 2 * i, unpack_lane<Codec>(planes, lane), Codec::kUnit,
                   out + 32 * i);
    }
  }

  // scales: two six-bit numbers, one per 16 weights; codes in multiples of `unit`
  static void write_values(float d, const uint8_t* scales, const LaneCodes& codes, int unit,
                           float* out) {
    for (int i = 0; i < 32; ++i) {
      const float scale = d * static_cast<float>((scales[i / 16] ^ 32) - 32);
      out[i] = scale * static_cast<float>(codes.byte[i] / unit - 4);
    }
  }
};
