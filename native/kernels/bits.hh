// Bit patterns of floats, halves and packed bytes.
#pragma once

constexpr uint32_t every_byte(uint32_t byte) { return byte * 0x01010101u; }

constexpr int32_t kInfinityBits = 0x7f800000;

INLINE int32_t float_bits(float x) {
  int32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}

INLINE float bits_float(int32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

// IEEE 754 binary16, subnormals included, without subnormal float operands.
INLINE float half_float(const uint8_t* p) {
  uint16_t half;
  memcpy(&half, p, 2);
  const int32_t magnitude = half & 0x7fff;
  const int32_t sign = static_cast<int32_t>(static_cast<uint32_t>(half & 0x8000) << 16);
  if (magnitude >= 0x7c00) return bits_float(sign | kInfinityBits | (magnitude & 0x3ff) << 13);
  if (magnitude >= 0x0400) return bits_float(sign | ((magnitude << 13) + 0x38000000));
  const float value = bits_float(0x38800000 + (magnitude << 13)) - bits_float(0x38800000);
  return bits_float(sign | float_bits(value));
}

// E8M0: 2^(e - 127), subnormal for e = 0.
INLINE float power_float(uint8_t e) {
  const int32_t bits = static_cast<int32_t>(e) << 23;
  return bits_float(bits == 0 ? 0x00400000 : bits);
}

// BF16: the upper half of a binary32.
INLINE float upper_half_float(const uint8_t* p) {
  uint16_t upper;
  memcpy(&upper, p, 2);
  return bits_float(static_cast<int32_t>(static_cast<uint32_t>(upper) << 16));
}
