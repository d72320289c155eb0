// Q4_K and Q5_K: 256 weights in eight groups of 32, each with a six-bit scale and minimum.
//
// GGUF block: d (f16), dmin (f16), 12 bytes of scales and minimums, high bits (Q5_K), 128 bytes of
// nibbles. Value of a weight of group g: (d * scale[g]) * code - dmin * minimum[g].
//
// Strip block: 16 d, 16 dmin (halves); then scales 0-3, scales 4-7, minimums 0-3 and minimums 4-7,
// packed as the four steps of SixBitCodes in three planes; then the codes of the eight groups.
//
// f32 step of a block, in block order, with I = sum of scale * group sum and M = sum of minimum *
// sum of the group's activation codes, both exact:
//   sum = fma(fma(-M, dmin, I * d), activation scale, sum)
#pragma once

constexpr int kKQuantHeaderBytes = kScaleLineBytes + 3 * kPlaneBytes;

// The scales (first two steps) and minimums (last two) of one row: 16 codes of six bits.
INLINE LaneCodes decode_six_bit_scales(const uint8_t* packed) {
  const uint32_t first = OneLane::load(packed);
  const uint32_t second = OneLane::load(packed + 4);
  const uint32_t third = OneLane::load(packed + 8);
  const uint32_t dwords[4] = {first & every_byte(63),
                              (third & every_byte(15)) | (first >> 6 & every_byte(3)) << 4,
                              second & every_byte(63),
                              (third >> 4 & every_byte(15)) | (second >> 6 & every_byte(3)) << 4};
  LaneCodes out{};
  memcpy(out.byte, dwords, sizeof(dwords));
  return out;
}

template <class Type>
struct KQuant {
  using Activation = ActivationBlock256;
  static constexpr int kBlockElements = 256;
  static constexpr int kChunkBlocks = 2;
  static constexpr int kSharedGroupBytes = shared_group_bytes(1);
  static constexpr bool kSharesCodes = true;

  static INLINE size_t block_offset(int block) {
    return block * size_t{kKQuantHeaderBytes + 8 * Type::Codec::kPlanes * kPlaneBytes};
  }
  static INLINE size_t group_offset(int group) {
    return kKQuantHeaderBytes + size_t(group) * Type::Codec::kPlanes * kPlaneBytes;
  }

  template <class Isa, class Source, int kRows>
  static void multiply_blocks(const uint8_t* strip, int first, int last, const Activation* x,
                              int step, float* tile, uint8_t* shared) {
    typename Isa::Floats sums[kRows];
    UNROLL for (int r = 0; r < kRows; ++r) sums[r] = Isa::load_floats(tile + r * kStripRows);
    for (int b = first; b < last; ++b, x += step) {
      const uint8_t* block = strip + block_offset(b);
      typename Isa::Wide integers[kRows];
      const auto source = Source(shared).at((b - first) * 8 * kSharedGroupBytes);
      scaled_group_sums<Isa>(block, source, x, integers);
      add_block<Isa>(block, x, integers, sums);
    }
    UNROLL for (int r = 0; r < kRows; ++r) Isa::store_floats(tile + r * kStripRows, sums[r]);
  }

  template <class Isa, class Source, int kRows>
  static INLINE void scaled_group_sums(const uint8_t* block, Source source, const Activation* x,
                                       typename Isa::Wide (&out)[kRows]) {
    const uint8_t* header = block + kScaleLineBytes;
    UNROLL for (int r = 0; r < kRows; ++r) out[r] = Isa::wide_zero();
    add_four_groups<Isa, 0>(block, source, SixBitCodes::unpack<Isa, 0>(header), x, out);
    add_four_groups<Isa, 4>(block, source, SixBitCodes::unpack<Isa, 1>(header), x, out);
  }

  template <class Isa, int kFirst, class Source, int kRows>
  static INLINE void add_four_groups(const uint8_t* block, Source source,
                                     typename Isa::Bytes scales, const Activation* x,
                                     typename Isa::Wide (&out)[kRows]) {
    ROLLED for (int g = 0; g < 4; ++g) {
      const uint8_t* planes = block + group_offset(kFirst + g);
      const auto group = source.at((kFirst + g) * kSharedGroupBytes);
      prefetch_group<Isa, typename Type::Codec>(planes);
      typename Isa::Narrow sums[kRows];
      UNROLL for (int r = 0; r < kRows; ++r) sums[r] = Type::template start<Isa>(x[r], kFirst + g);
      add_steps<Isa, typename Type::Codec, 0, kGroupSteps>(
          planes, group, x->codes + (kFirst + g) * 32, sizeof(Activation), sums);
      const auto scale = group.template scale<Isa, 0>(
          [&] { return Isa::unsigned_scale(scales, g); });
      UNROLL for (int r = 0; r < kRows; ++r) out[r] = Isa::add_scaled(out[r], sums[r], scale);
    }
  }

  template <class Isa, int kRows>
  static INLINE void add_block(const uint8_t* block, const Activation* x,
                               const typename Isa::Wide (&integers)[kRows],
                               typename Isa::Floats (&sums)[kRows]) {
    const uint8_t* header = block + kScaleLineBytes;
    const auto d = Isa::load_half_floats(block);
    const auto dmin = Isa::load_half_floats(block + kScaleLineBytes / 2);
    const auto low = SixBitCodes::unpack<Isa, 2>(header);
    const auto high = SixBitCodes::unpack<Isa, 3>(header);
    UNROLL for (int r = 0; r < kRows; ++r) {
      const auto minimums = weigh_groups<Isa>(low, high, x[r]);
      const auto total = Type::template uncentre<Isa>(integers[r], header, x[r]);
      const auto scaled = Isa::multiply(Isa::to_floats(total), d);
      const auto value = Isa::fnma(Isa::to_floats(minimums), dmin, scaled);
      sums[r] = Isa::fma(value, Isa::splat(x[r].scale), sums[r]);
    }
  }

  // Sum over the eight groups of factor * sum of the activation codes.
  template <class Isa>
  static INLINE typename Isa::Wide weigh_groups(typename Isa::Bytes low, typename Isa::Bytes high,
                                                const Activation& x) {
    auto sum = Isa::add_even_bytes(Isa::wide_zero(), low, Isa::broadcast(&x.sums[0]));
    sum = Isa::add_even_bytes(sum, Isa::template shift_right<8>(low), Isa::broadcast(&x.sums[1]));
    sum = Isa::add_even_bytes(sum, high, Isa::broadcast(&x.sums[2]));
    return Isa::add_even_bytes(sum, Isa::template shift_right<8>(high),
                               Isa::broadcast(&x.sums[3]));
  }

  static void repack_block(const uint8_t* const (&rows)[kStripRows], int block, uint8_t* strip) {
    uint8_t* out = strip + block_offset(block);
    GroupCodes scales;
    for (int lane = 0; lane < kStripRows; ++lane) {
      const uint8_t* source = rows[lane];
      memcpy(out + lane * 2, source, 2);
      memcpy(out + kScaleLineBytes / 2 + lane * 2, source + 2, 2);
      set_lane(scales, lane, decode_six_bit_scales(source + 4));
    }
    SixBitCodes::pack_planes(scales, 3, out + kScaleLineBytes);
    for (int g = 0; g < 8; ++g) {
      GroupCodes codes;
      for (int lane = 0; lane < kStripRows; ++lane) {
        set_lane(codes, lane, Type::decode(rows[lane], g));
      }
      Type::Codec::pack(codes, out + group_offset(g));
    }
  }

  static void dequantise_source_block(const uint8_t* source, float* out) {
    const LaneCodes scales = decode_six_bit_scales(source + 4);
    for (int g = 0; g < 8; ++g) {
      write_values(half_float(source), half_float(source + 2), scales, g, Type::decode(source, g),
                   out + 32 * g);
    }
  }

  static void dequantise_packed_block(const uint8_t* strip, int block, int lane, float* out) {
    const uint8_t* packed = strip + block_offset(block);
    const float d = half_float(packed + lane * 2);
    const float dmin = half_float(packed + kScaleLineBytes / 2 + lane * 2);
    const LaneCodes scales = unpack_lane<SixBitCodes, 4>(packed + kScaleLineBytes, lane);
    for (int g = 0; g < 8; ++g) {
      write_values(d, dmin, scales, g,
                   unpack_lane<typename Type::Codec>(packed + group_offset(g), lane),
                   out + 32 * g);
    }
  }

  static void write_values(float d, float dmin, const LaneCodes& scales, int group,
                           const LaneCodes& codes, float* out) {
    const float scale = d * static_cast<float>(scales.byte[group]);
    const float minimum = dmin * static_cast<float>(scales.byte[8 + group]);
    for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(codes.byte[i]) - minimum;
  }
};
