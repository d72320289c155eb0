// The first output word of Philox4x32-10 for 16 consecutive token ids. Included once per level.
#pragma once

namespace slipstream::SLIPSTREAM_LEVEL {

constexpr uint32_t kPhiloxMultiplier[2] = {0xd2511f53u, 0xcd9e8d57u};
constexpr uint32_t kPhiloxWeyl[2] = {0x9e3779b9u, 0xbb67ae85u};
constexpr int kPhiloxRounds = 10;

// Words sit in the low halves of 64-bit places; the high halves are never read.
struct PhiloxStream {
  uint64_t keys[kPhiloxRounds][2];
  uint64_t index;
};

inline PhiloxStream philox_stream(uint64_t seed, uint64_t index) {
  PhiloxStream stream;
  stream.index = index;
  for (uint32_t round = 0; round < kPhiloxRounds; ++round) {
    stream.keys[round][0] = uint32_t(seed) + round * kPhiloxWeyl[0];
    stream.keys[round][1] = uint32_t(seed >> 32) + round * kPhiloxWeyl[1];
  }
  return stream;
}

SLIPSTREAM_INLINE U64x8 first_words_eight(const PhiloxStream& stream, int token) {
  const U64x8 multiplier0 = set_wide(kPhiloxMultiplier[0]);
  const U64x8 multiplier1 = set_wide(kPhiloxMultiplier[1]);
  U64x8 c0 = count_up_from(uint32_t(token)), c1 = set_wide(stream.index);
  U64x8 c2 = set_wide(stream.index >> 32), c3 = set_wide(0);
  for (const auto& key : stream.keys) {
    const U64x8 product0 = multiply_low_words(multiplier0, c0);
    const U64x8 product1 = multiply_low_words(multiplier1, c2);
    c0 = bit_xor(bit_xor(high_words(product1), c1), set_wide(key[0]));
    c2 = bit_xor(bit_xor(high_words(product0), c3), set_wide(key[1]));
    c1 = product1;
    c3 = product0;
  }
  return c0;
}

SLIPSTREAM_INLINE I32x16 first_words(const PhiloxStream& stream, int token) {
  return low_words(first_words_eight(stream, token), first_words_eight(stream, token + 8));
}

}  // namespace slipstream::SLIPSTREAM_LEVEL
