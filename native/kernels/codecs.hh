// How the codes of 32 weights x 16 rows are packed: planes of 64 bytes, four bytes a row.
//
// Step s (0..7) is the dword of a row's weights 4s .. 4s+3. A codec packs the eight steps into as
// many planes as a weight has bits, hence into the same bytes as GGUF. `unpack` recovers one step
// with whole-vector operations; codes without a plane of their own lie in spare bits of others.
//
// Overflow. Where an instruction-set level sums pairs of products in int16, a pair is at most
// 2 * code_max * 127 and never saturates; the sums over a group wrap, and end at the sum of
// (code - offset) * x over two of every four weights, which fits for the groups used here:
//   4 bits, 32 weights, offset 0 or 8   16 * 15 * 127 = 30480
//   5 bits, 32 weights, offset 16       16 * 16 * 127 = 32512
//   6 bits, 16 weights, offset 32        8 * 32 * 127 = 32512
#pragma once

constexpr int kPlaneBytes = 4 * kStripRows;
constexpr int kGroupSteps = 8;

// The codes of 32 weights of 16 rows, one a byte.
struct GroupCodes {
  alignas(64) uint32_t step[kGroupSteps][kStripRows];
};

template <class Function>
INLINE void pack_plane(uint8_t* planes, int plane, Function dword_of_lane) {
  for (int lane = 0; lane < kStripRows; ++lane) {
    const uint32_t dword = dword_of_lane(lane);
    memcpy(planes + plane * kPlaneBytes + lane * 4, &dword, 4);
  }
}

// Plane p: step p in the low nibbles, step p + 4 in the high ones.
struct FourBitCodes {
  static constexpr int kPlanes = 4;

  template <class Isa, int kStep>
  static INLINE typename Isa::Bytes unpack(const uint8_t* planes) {
    const auto plane = Isa::load(planes + (kStep % 4) * kPlaneBytes);
    if constexpr (kStep < 4) return Isa::mask(plane, 0x0f);
    return Isa::mask(Isa::template shift_right<4>(plane), 0x0f);
  }

  static void pack(const GroupCodes& codes, uint8_t* planes) {
    for (int p = 0; p < kPlanes; ++p) {
      pack_plane(planes, p, [&](int lane) {
        return codes.step[p][lane] | codes.step[p + 4][lane] << 4;
      });
    }
  }
};

// Plane p: step p in bits 0-4. Bits 5-7 of planes 0, 2 and 4: the low bits of steps 5, 6 and 7.
// The high bits: step 5 in bits 6-7 of plane 1, step 6 in bits 6-7 of plane 3, step 7 in bit 5 of
// planes 1 and 3.
struct FiveBitCodes {
  static constexpr int kPlanes = 5;

  template <class Isa, int kStep>
  static INLINE typename Isa::Bytes unpack(const uint8_t* planes) {
    const auto plane = [&](int p) { return Isa::load(planes + p * kPlaneBytes); };
    if constexpr (kStep < 5) return Isa::mask(plane(kStep), 0x1f);
    constexpr int kLow = 2 * (kStep - 5);
    const auto low = Isa::mask(Isa::template shift_right<5>(plane(kLow)), 0x07);
    if constexpr (kStep < 7) {
      return Isa::or_masked(low, Isa::template shift_right<3>(plane(kLow + 1)), 0x18);
    }
    const auto bit3 = Isa::or_masked(low, Isa::template shift_right<2>(plane(1)), 0x08);
    return Isa::or_masked(bit3, Isa::template shift_right<1>(plane(3)), 0x10);
  }

  static void pack(const GroupCodes& codes, uint8_t* planes) {
    const auto field = [&](int step, int lane, int shift, uint32_t bits) {
      return codes.step[step][lane] >> shift & every_byte(bits);
    };
    for (int p = 0; p < kPlanes; p += 2) {
      pack_plane(planes, p, [&](int lane) {
        return codes.step[p][lane] | field(5 + p / 2, lane, 0, 7) << 5;
      });
    }
    for (int p = 1; p < kPlanes; p += 2) {
      pack_plane(planes, p, [&](int lane) {
        return codes.step[p][lane] | field(7, lane, 3 + p / 2, 1) << 5 |
               field(5 + p / 2, lane, 3, 3) << 6;
      });
    }
  }
};

// Each 16 weights (four steps) take three planes. Plane p: step p in bits 0-5; bits 6-7 of planes
// 0, 1 and 2 are bits 0-1, 2-3 and 4-5 of step 3.
struct SixBitCodes {
  static constexpr int kPlanes = 6;

  template <class Isa, int kStep>
  static INLINE typename Isa::Bytes unpack(const uint8_t* planes) {
    constexpr int kFirst = kStep / 4 * 3;
    const auto plane = [&](int p) { return Isa::load(planes + (kFirst + p) * kPlaneBytes); };
    if constexpr (kStep % 4 < 3) return Isa::mask(plane(kStep % 4), 0x3f);
    const auto low = Isa::mask(Isa::template shift_right<6>(plane(0)), 0x03);
    const auto middle = Isa::or_masked(low, Isa::template shift_right<4>(plane(1)), 0x0c);
    return Isa::or_masked(middle, Isa::template shift_right<2>(plane(2)), 0x30);
  }

  static void pack(const GroupCodes& codes, uint8_t* planes) {
    pack_planes(codes, kPlanes, planes);
  }

  // The first `count` planes: three for four steps.
  static void pack_planes(const GroupCodes& codes, int count, uint8_t* planes) {
    for (int p = 0; p < count; ++p) {
      const int step = p / 3 * 4 + p % 3;
      const int shared = p / 3 * 4 + 3;
      pack_plane(planes, p, [&](int lane) {
        return codes.step[step][lane] |
               (codes.step[shared][lane] >> 2 * (p % 3) & every_byte(3)) << 6;
      });
    }
  }
};

struct EightBitCodes {
  static constexpr int kPlanes = 8;

  template <class Isa, int kStep>
  static INLINE typename Isa::Bytes unpack(const uint8_t* planes) {
    return Isa::load(planes + kStep * kPlaneBytes);
  }

  static void pack(const GroupCodes& codes, uint8_t* planes) {
    memcpy(planes, codes.step, sizeof(codes.step));
  }
};
