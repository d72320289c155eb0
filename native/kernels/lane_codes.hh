// One row's view of the packed codes: used to repack and to dequantise.
#pragma once

// The codes of 32 weights of one row, in order.
struct LaneCodes {
  uint8_t byte[32];
};

INLINE uint64_t load_word(const uint8_t* p) {
  uint64_t word;
  memcpy(&word, p, 8);
  return word;
}

constexpr uint64_t every_byte_of_word(uint64_t byte) { return byte * 0x0101010101010101u; }

// codes[8i .. 8i+7] = bytes of word(i), i = 0..3: eight codes at a time in one register.
template <class Function>
INLINE LaneCodes lane_codes_of_words(Function word_at) {
  LaneCodes out;
  for (int i = 0; i < 4; ++i) {
    const uint64_t word = word_at(i);
    memcpy(out.byte + 8 * i, &word, 8);
  }
  return out;
}

INLINE void set_lane(GroupCodes& codes, int lane, const LaneCodes& row) {
  for (int s = 0; s < kGroupSteps; ++s) memcpy(&codes.step[s][lane], row.byte + 4 * s, 4);
}

// The four bytes of one row of a plane, with the operations that codecs use.
struct OneLane {
  using Bytes = uint32_t;
  static INLINE Bytes load(const uint8_t* p) {
    uint32_t dword;
    memcpy(&dword, p, 4);
    return dword;
  }
  static INLINE Bytes mask(Bytes a, int bits) { return a & every_byte(bits); }
  template <int kShift>
  static INLINE Bytes shift_right(Bytes a) { return a >> kShift; }
  template <int kShift>
  static INLINE Bytes shift_left(Bytes a) { return a << kShift; }
  static INLINE Bytes or_masked(Bytes a, Bytes b, int bits) { return a | mask(b, bits); }
};

template <class Codec, int kSteps, int kStep = 0>
INLINE void unpack_lane_steps(const uint8_t* planes, LaneCodes& out) {
  if constexpr (kStep < kSteps) {
    const uint32_t dword = Codec::template unpack<OneLane, kStep>(planes);
    memcpy(out.byte + 4 * kStep, &dword, 4);
    unpack_lane_steps<Codec, kSteps, kStep + 1>(planes, out);
  }
}

// The first `kSteps` steps of row `lane`; the rest of the result is unset.
template <class Codec, int kSteps = kGroupSteps>
INLINE LaneCodes unpack_lane(const uint8_t* planes, int lane) {
  LaneCodes out;
  unpack_lane_steps<Codec, kSteps>(planes + 4 * lane, out);
  return out;
}

// 16 bytes: weight j in the low nibble of byte j, weight j + 16 in the high one.
INLINE LaneCodes decode_nibbles(const uint8_t* packed) {
  return lane_codes_of_words([&](int i) {
    return load_word(packed + i % 2 * 8) >> i / 2 * 4 & every_byte_of_word(15);
  });
}
