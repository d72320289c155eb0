// Types with blocks of 32 weights: one scale, or a scale and a minimum, per block.
//
// Strip: units of 64 bytes of scales and then codes. With a scale alone a unit holds two blocks
// (two times 16 halves), with a minimum one (16 scales, 16 minimums). The last unit of an odd
// number of blocks lacks its second block, whose place in the scales is the padding to 64 bytes.
//
// f32 step of a block, in block order:
//   sum = fma(integer sum, weight scale * activation scale, sum)
//   sum = fma(weight minimum, activation scaled sum, sum)          with a minimum
#pragma once

constexpr int kScaleLineBytes = 64;

template <class Type>
struct Block32Layout {
  static constexpr int kUnitBlocks = Type::kHasMinimum ? 1 : 2;
  static constexpr int kCodeBytes = Type::Codec::kPlanes * kPlaneBytes;
  static constexpr size_t kUnitBytes = kScaleLineBytes + kUnitBlocks * kCodeBytes;

  static INLINE size_t unit_offset(int block) { return block / kUnitBlocks * kUnitBytes; }
  static INLINE size_t scale_offset(int block) {
    return unit_offset(block) + block % kUnitBlocks * (kScaleLineBytes / 2);
  }
  static INLINE size_t code_offset(int block) {
    return unit_offset(block) + kScaleLineBytes + block % kUnitBlocks * kCodeBytes;
  }
};

template <class Type>
struct Block32 {
  using Activation = ActivationBlock32;
  static constexpr int kBlockElements = 32;
  static constexpr int kChunkBlocks = 16;
  static constexpr int kSharedGroupBytes = shared_group_bytes(0);
  static constexpr bool kSharesCodes = true;

  template <class Isa, class Source, int kRows>
  static void multiply_blocks(const uint8_t* strip, int first, int last, const Activation* x,
                              int step, float* tile, uint8_t* shared) {
    using Layout = Block32Layout<Type>;
    typename Isa::Floats sums[kRows];
    UNROLL for (int r = 0; r < kRows; ++r) sums[r] = Isa::load_floats(tile + r * kStripRows);
    for (int b = first; b < last; ++b, x += step) {
      const uint8_t* planes = strip + Layout::code_offset(b);
      const auto group = Source(shared).at((b - first) * kSharedGroupBytes);
      prefetch_group<Isa, typename Type::Codec>(planes);
      typename Isa::Wide integers[kRows];
      Type::template integer_sums<Isa>(planes, group, x, integers);
      add_scaled_block<Isa>(strip + Layout::scale_offset(b), x, integers, sums);
    }
    UNROLL for (int r = 0; r < kRows; ++r) Isa::store_floats(tile + r * kStripRows, sums[r]);
  }

  template <class Isa, int kRows>
  static INLINE void add_scaled_block(const uint8_t* scales, const Activation* x,
                                      const typename Isa::Wide (&integers)[kRows],
                                      typename Isa::Floats (&sums)[kRows]) {
    const auto scale = Isa::load_half_floats(scales);
    UNROLL for (int r = 0; r < kRows; ++r) {
      const auto factor = Isa::multiply(scale, Isa::splat(x[r].scale));
      sums[r] = Isa::fma(Isa::to_floats(integers[r]), factor, sums[r]);
    }
    if constexpr (Type::kHasMinimum) {
      const auto minimum = Isa::load_half_floats(scales + kScaleLineBytes / 2);
      UNROLL for (int r = 0; r < kRows; ++r) {
        sums[r] = Isa::fma(minimum, Isa::splat(x[r].scaled_sum), sums[r]);
      }
    }
  }

  // Sums of unsigned codes minus the zero point that `start` puts in.
  template <class Isa, class Source, class Start, int kRows>
  static INLINE void unsigned_sums(const uint8_t* planes, Source source, const Activation* x,
                                   Start start, typename Isa::Wide (&out)[kRows]) {
    typename Isa::Narrow sums[kRows];
    UNROLL for (int r = 0; r < kRows; ++r) sums[r] = start(x[r]);
    add_steps<Isa, typename Type::Codec, 0, kGroupSteps>(planes, source, x->codes,
                                                         sizeof(Activation), sums);
    UNROLL for (int r = 0; r < kRows; ++r) out[r] = Isa::widen(sums[r]);
  }

  static void repack_block(const uint8_t* const (&rows)[kStripRows], int block, uint8_t* strip) {
    using Layout = Block32Layout<Type>;
    uint8_t* scales = strip + Layout::scale_offset(block);
    GroupCodes codes;
    for (int lane = 0; lane < kStripRows; ++lane) {
      const uint8_t* source = rows[lane];
      memcpy(scales + lane * 2, source, 2);
      if (Type::kHasMinimum) memcpy(scales + kScaleLineBytes / 2 + lane * 2, source + 2, 2);
      set_lane(codes, lane, Type::decode(source));
    }
    Type::Codec::pack(codes, strip + Layout::code_offset(block));
  }

  static void dequantise_source_block(const uint8_t* source, float* out) {
    const float minimum = Type::kHasMinimum ? half_float(source + 2) : 0.0f;
    write_values(half_float(source), minimum, Type::decode(source), out);
  }

  static void dequantise_packed_block(const uint8_t* strip, int block, int lane, float* out) {
    using Layout = Block32Layout<Type>;
    const uint8_t* scales = strip + Layout::scale_offset(block) + lane * 2;
    const float minimum = Type::kHasMinimum ? half_float(scales + kScaleLineBytes / 2) : 0.0f;
    write_values(half_float(scales), minimum,
                 unpack_lane<typename Type::Codec>(strip + Layout::code_offset(block), lane), out);
  }

  static void write_values(float scale, float minimum, const LaneCodes& codes, float* out) {
    for (int i = 0; i < 32; ++i) out[i] = Type::value(scale, minimum, codes.byte[i]);
  }
};
