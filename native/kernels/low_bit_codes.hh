// Codes of two and three bits, packed as codecs.hh says; groups of 16 weights with scales.
//
// Overflow of int16 sums, as in codecs.hh:
//   2 bits, 16 weights, offset 0             8 * 3 * 127 = 3048
//   3 bits times 8, 16 weights, offset 32    8 * 32 * 127 = 32512
#pragma once

// Step s lies in bits 2 * (s % 4) and the next of plane s / 4: one plane for 16 weights.
struct TwoBitCodes {
  static constexpr int kPlanes = 2;

  template <class Isa, int kStep>
  static INLINE typename Isa::Bytes unpack(const uint8_t* planes) {
    const auto plane = Isa::load(planes + kStep / 4 * kPlaneBytes);
    if constexpr (kStep % 4 == 0) return Isa::mask(plane, 0x03);
    return Isa::mask(Isa::template shift_right<kStep % 4 * 2>(plane), 0x03);
  }

  static void pack(const GroupCodes& codes, uint8_t* planes) {
    for (int p = 0; p < kPlanes; ++p) {
      pack_plane(planes, p, [&](int lane) {
        uint32_t dword = 0;
        for (int s = 0; s < 4; ++s) dword |= codes.step[4 * p + s][lane] << 2 * s;
        return dword;
      });
    }
  }
};

// Plane p: step p in bits 3-5, step p + 3 in bits 0-2. Bits 6-7 of planes 0 and 1: the low bits of
// steps 6 and 7, whose high bits are bits 6 and 7 of plane 2. Codes come out times eight, so that
// their zero point is 32, for which a row's sums are prepared.
struct ThreeBitCodes {
  static constexpr int kPlanes = 3;
  static constexpr int kUnit = 8;

  template <class Isa, int kStep>
  static INLINE typename Isa::Bytes unpack(const uint8_t* planes) {
    const auto plane = [&](int p) { return Isa::load(planes + p * kPlaneBytes); };
    if constexpr (kStep < 3) return Isa::mask(plane(kStep), 0x38);
    if constexpr (kStep < 6) return Isa::mask(Isa::template shift_left<3>(plane(kStep - 3)), 0x38);
    constexpr int kOdd = kStep % 2;
    const auto low = Isa::mask(Isa::template shift_right<3>(plane(kOdd)), 0x18);
    return Isa::or_masked(low, Isa::template shift_right<1 + kOdd>(plane(2)), 0x20);
  }

  static void pack(const GroupCodes& codes, uint8_t* planes) {
    const auto field = [&](int step, int lane, int shift, uint32_t bits) {
      return codes.step[step][lane] >> shift & every_byte(bits);
    };
    for (int p = 0; p < kPlanes; ++p) {
      pack_plane(planes, p, [&](int lane) {
        const uint32_t high = field(6, lane, 2, 1) | field(7, lane, 2, 1) << 1;
        const uint32_t spare = p < 2 ? field(6 + p, lane, 0, 3) : high;
        return codes.step[p][lane] << 3 | codes.step[p + 3][lane] | spare << 6;
      });
    }
  }
};

// The two low bits of 32 weights, quarter `index` % 4 of a half: bits 2q, 2q + 1 of its 32 bytes.
INLINE LaneCodes decode_bit_pairs(const uint8_t* packed, int index) {
  const uint8_t* bytes = packed + index / 4 * 32;
  return lane_codes_of_words([&](int i) {
    return load_word(bytes + 8 * i) >> index % 4 * 2 & every_byte_of_word(3);
  });
}

// Sum over a block's sixteen groups of scale * group sum. Type::scales gives four scales a row,
// Type::scale one of them, Type::start the zero point of a group.
template <class Isa, class Type, int kOdd, class Source, int kRows>
INLINE void add_group_of_16(const uint8_t* planes, Source source, typename Isa::Scale scale,
                            int pair, const ActivationBlock256* x,
                            typename Isa::Wide (&out)[kRows]) {
  typename Isa::Narrow sums[kRows];
  UNROLL for (int r = 0; r < kRows; ++r) {
    sums[r] = Type::template start<Isa>(x[r], 2 * pair + kOdd);
  }
  add_steps<Isa, typename Type::Codec, 4 * kOdd, 4>(planes, source, x->codes + 32 * pair,
                                                    sizeof(ActivationBlock256), sums);
  UNROLL for (int r = 0; r < kRows; ++r) out[r] = Isa::add_scaled(out[r], sums[r], scale);
}

// The loop stays rolled: unrolled it does not fit the cache of decoded instructions.
template <class Isa, class Type, class Source, int kRows>
INLINE void sum_groups_of_16(const uint8_t* scales, const uint8_t* codes, Source source,
                             const ActivationBlock256* x, typename Isa::Wide (&out)[kRows]) {
  using Codec = typename Type::Codec;
  const typename Isa::Bytes quarters[4] = {
      Type::template scales<Isa, 0>(scales), Type::template scales<Isa, 1>(scales),
      Type::template scales<Isa, 2>(scales), Type::template scales<Isa, 3>(scales)};
  UNROLL for (int r = 0; r < kRows; ++r) out[r] = Isa::wide_zero();
  ROLLED for (int pair = 0; pair < 8; ++pair) {
    const uint8_t* planes = codes + pair * Codec::kPlanes * kPlaneBytes;
    prefetch_group<Isa, Codec>(planes);
    const auto group = source.at(pair * Type::kSharedGroupBytes);
    const auto first = group.template scale<Isa, 0>(
        [&] { return Type::template scale<Isa>(quarters[pair / 2], pair % 2 * 2); });
    add_group_of_16<Isa, Type, 0>(planes, group, first, pair, x, out);
    const auto second = group.template scale<Isa, 1>(
        [&] { return Type::template scale<Isa>(quarters[pair / 2], pair % 2 * 2 + 1); });
    add_group_of_16<Isa, Type, 1>(planes, group, second, pair, x, out);
  }
}

// Codes of eight times 32 weights of sixteen rows, into planes.
template <class Type>
void repack_codes(const uint8_t* const (&rows)[kStripRows], uint8_t* planes) {
  for (int i = 0; i < 8; ++i) {
    GroupCodes codes;
    for (int lane = 0; lane < kStripRows; ++lane) {
      set_lane(codes, lane, Type::decode(rows[lane], i));
    }
    Type::Codec::pack(codes, planes + i * Type::Codec::kPlanes * kPlaneBytes);
  }
}
