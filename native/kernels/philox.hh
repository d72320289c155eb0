// The first output word of Philox4x32-10 for 8 token ids. Included once per level.
#pragma once

namespace slipstream::SLIPSTREAM_LEVEL {

constexpr uint32_t kPhiloxMultiplier[2] = {0xd2511f53u, 0xcd9e8d57u};
constexpr uint32_t kPhiloxWeyl[2] = {0x9e3779b9u, 0xbb67ae85u};
constexpr int kPhiloxRounds = 10;

// Words sit in the low halves of 64-bit places; the high halves are never read. Only word 0 of the
// counter differs between tokens, so the rounds' constant parts are computed once.
struct PhiloxStream {
  uint64_t keys[kPhiloxRounds][2];
  uint64_t first_key;     // round 0: word 3 ^ key 1
  uint64_t second_words;  // round 1: word 1 ^ key 0, beside its constant word 0
  uint64_t second_key;
  uint64_t third_key;  // round 2: constant word 3 ^ key 1
};

inline PhiloxStream philox_stream(uint64_t seed, uint64_t index) {
  PhiloxStream stream;
  for (uint32_t round = 0; round < kPhiloxRounds; ++round) {
    stream.keys[round][0] = uint32_t(seed) + round * kPhiloxWeyl[0];
    stream.keys[round][1] = uint32_t(seed >> 32) + round * kPhiloxWeyl[1];
  }
  const uint64_t constant1 = uint64_t(kPhiloxMultiplier[1]) * uint32_t(index >> 32);
  const uint32_t word0 = uint32_t(constant1 >> 32) ^ uint32_t(index) ^ uint32_t(stream.keys[0][0]);
  const uint64_t constant0 = uint64_t(kPhiloxMultiplier[0]) * word0;
  stream.first_key = stream.keys[0][1];
  stream.second_words = uint32_t(constant1) ^ stream.keys[1][0];
  stream.second_key = (constant0 >> 32) ^ stream.keys[1][1];
  stream.third_key = uint32_t(constant0) ^ stream.keys[2][1];
  return stream;
}

SLIPSTREAM_INLINE U64x8 mixed(const U64x8& product, const U64x8& word, uint64_t key) {
  return bit_xor(bit_xor(high_words(product), word), set_wide(key));
}

// Out of line, because two interleaved copies do not fit 16 registers.
SLIPSTREAM_OUT_OF_LINE void first_words_eight(const PhiloxStream& stream, const uint64_t* tokens,
                                              uint64_t* words) {
  const U64x8 multiplier0 = set_wide(kPhiloxMultiplier[0]);
  const U64x8 multiplier1 = set_wide(kPhiloxMultiplier[1]);
  // Rounds 0, 1 and 2, with words 0 and 1, then 3 constant.
  U64x8 product0 = multiply_low_words(multiplier0, load_wide(tokens));
  U64x8 c2 = bit_xor(high_words(product0), set_wide(stream.first_key));
  U64x8 product1 = multiply_low_words(multiplier1, c2);
  U64x8 c0 = bit_xor(high_words(product1), set_wide(stream.second_words));
  c2 = bit_xor(product0, set_wide(stream.second_key));
  U64x8 c1 = product1;
  product0 = multiply_low_words(multiplier0, c0);
  product1 = multiply_low_words(multiplier1, c2);
  c0 = mixed(product1, c1, stream.keys[2][0]);
  c2 = bit_xor(high_words(product0), set_wide(stream.third_key));
  c1 = product1;
  U64x8 c3 = product0;
  for (int round = 3; round < kPhiloxRounds - 2; ++round) {
    product0 = multiply_low_words(multiplier0, c0);
    product1 = multiply_low_words(multiplier1, c2);
    c0 = mixed(product1, c1, stream.keys[round][0]);
    c2 = mixed(product0, c3, stream.keys[round][1]);
    c1 = product1;
    c3 = product0;
  }
  // The last two rounds, as far as word 0 of the result needs them.
  product0 = multiply_low_words(multiplier0, c0);
  product1 = multiply_low_words(multiplier1, c2);
  c2 = mixed(product0, c3, stream.keys[kPhiloxRounds - 2][1]);
  product0 = multiply_low_words(multiplier1, c2);
  store_wide(words, mixed(product0, product1, stream.keys[kPhiloxRounds - 1][0]));
}

}  // namespace slipstream::SLIPSTREAM_LEVEL
