// MXFP4: 32 floats of four bits (E2M1) and one power of two (E8M0).
//
// GGUF block: scale e (one byte), 16 bytes of nibbles. Value of a weight: 2^(e - 127) times half of
// kDoubledE2M1[code]. The half goes to the other factor, so that the scale is a float for e = 254
// and an exact one for e = 0.
//
// Strip: units of four blocks: their scales (four times 16 bytes), then their codes. The last unit
// of another number lacks the rest; the places of their scales are the padding to 64 bytes.
//
// f32 step of a block, in block order:
//   sum = fma(integer sum, weight scale * (activation scale / 2), sum)
#pragma once

struct MXFP4 {
  using Activation = ActivationBlock32;
  using Codec = E2M1Codes;
  static constexpr int kBlockElements = 32;
  static constexpr int kBlockBytes = 17;
  static constexpr int kChunkBlocks = 16;
  static constexpr int kSharedGroupBytes = shared_group_bytes(0);
  static constexpr bool kSharesCodes = true;
  static constexpr int kUnitBlocks = kScaleLineBytes / kStripRows;
  static constexpr int kCodeBytes = Codec::kPlanes * kPlaneBytes;

  static INLINE size_t unit_offset(int block) {
    return block / kUnitBlocks * size_t{kScaleLineBytes + kUnitBlocks * kCodeBytes};
  }
  static INLINE size_t scale_offset(int block) {
    return unit_offset(block) + block % kUnitBlocks * kStripRows;
  }
  static INLINE size_t code_offset(int block) {
    return unit_offset(block) + kScaleLineBytes + block % kUnitBlocks * kCodeBytes;
  }

  template <class Isa, class Source, int kRows>
  static void multiply_blocks(const uint8_t* strip, int first, int last, const Activation* x,
                              int step, float* tile, uint8_t* shared) {
    typename Isa::Floats sums[kRows];
    UNROLL for (int r = 0; r < kRows; ++r) sums[r] = Isa::load_floats(tile + r * kStripRows);
    for (int b = first; b < last; ++b, x += step) {
      const uint8_t* planes = strip + code_offset(b);
      prefetch_group<Isa, Codec>(planes);
      typename Isa::Narrow integers[kRows];
      UNROLL for (int r = 0; r < kRows; ++r) integers[r] = Isa::narrow_start(x[r].offset16);
      const auto source = Source(shared).at((b - first) * kSharedGroupBytes);
      add_steps<Isa, Codec, 0, kGroupSteps>(planes, source, x->codes, sizeof(Activation), integers);
      const auto scale = Isa::load_powers(strip + scale_offset(b));
      UNROLL for (int r = 0; r < kRows; ++r) {
        const auto factor = Isa::multiply(scale, Isa::splat(x[r].scale * 0.5f));
        sums[r] = Isa::fma(Isa::to_floats(Isa::widen(integers[r])), factor, sums[r]);
      }
    }
    UNROLL for (int r = 0; r < kRows; ++r) Isa::store_floats(tile + r * kStripRows, sums[r]);
  }

  static LaneCodes decode(const uint8_t* block) { return decode_nibbles(block + 1); }

  static void repack_block(const uint8_t* const (&rows)[kStripRows], int block, uint8_t* strip) {
    GroupCodes codes;
    for (int lane = 0; lane < kStripRows; ++lane) {
      strip[scale_offset(block) + lane] = rows[lane][0];
      set_lane(codes, lane, decode(rows[lane]));
    }
    Codec::pack(codes, strip + code_offset(block));
  }

  static void dequantise_source_block(const uint8_t* source, float* out) {
    write_values(power_float(source[0]), decode(source), out);
  }

  static void dequantise_packed_block(const uint8_t* strip, int block, int lane, float* out) {
    write_values(power_float(strip[scale_offset(block) + lane]),
                 unpack_lane<FourBitCodes>(strip + code_offset(block), lane), out);
  }

  static void write_values(float scale, const LaneCodes& codes, float* out) {
    for (int i = 0; i < 32; ++i) {
      out[i] = scale * (0.5f * static_cast<float>(kDoubledE2M1[codes.byte[i]]));
    }
  }
};
