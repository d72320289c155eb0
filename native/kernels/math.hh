// Elementary functions of our own: the same bits on every level. Included once per level.
//
// The float polynomials are least-maximum fits (weighted least squares, iterated) of the stated
// remainder; the double ones are Taylor series, long enough for the last bit.
#pragma once

namespace slipstream::SLIPSTREAM_LEVEL {

SLIPSTREAM_INLINE F32x16 negate(const F32x16& x) {
  return floats(bit_xor(integers(x), set_int(0x80000000u)));
}

// e^x by x = n ln 2 + r, |r| <= ln 2 / 2: at most 1.1 ulp, subnormal results rounded once,
// 0 below -104, infinity above 88.73, NaN for NaN.
SLIPSTREAM_INLINE F32x16 exp(const F32x16& argument) {
  const F32x16 x = minimum(set(89.0f), maximum(set(-104.0f), argument));
  const F32x16 shifter = set(0x1.8p23f);  // adding it rounds to an integer in the low bits
  const F32x16 shifted = fma(x, set(0x1.715476p0f), shifter);
  const F32x16 n = sub(shifted, shifter);
  const F32x16 high = fma(n, set(-0x1.62e4p-1f), x);
  const F32x16 r = fma(n, set(-1.428606765330187e-06f), high);
  F32x16 p = fma(r, set(0.0013814540579915047f), set(0.00836874544620514f));
  p = fma(p, r, set(0.04166838899254799f));
  p = fma(p, r, set(0.1666652113199234f));
  p = fma(p, r, set(0.4999999403953552f));
  p = fma(mul(r, r), p, r);
  p = add(p, set(1.0f));
  // Two powers of two, because 2^n itself may be subnormal or overflow.
  const I32x16 exponent = sub(integers(shifted), integers(shifter));
  const I32x16 half = shift_right_signed<1>(exponent);
  const auto power = [](const I32x16& e) { return floats(shift_left<23>(add(e, set_int(127)))); };
  return mul(mul(p, power(half)), power(sub(exponent, half)));
}

SLIPSTREAM_INLINE F32x16 sigmoid(const F32x16& x) {
  return div(set(1.0f), add(set(1.0f), exp(negate(x))));
}

SLIPSTREAM_INLINE F32x16 silu(const F32x16& x) {
  return div(x, add(set(1.0f), exp(negate(x))));
}

// x + x^3 P(x^2) below 0.625, 1 - 2 / (e^2x + 1) above; odd by its sign bit.
SLIPSTREAM_INLINE F32x16 tanh(const F32x16& x) {
  const I32x16 sign = bit_and(integers(x), set_int(0x80000000u));
  const F32x16 magnitude = floats(bit_xor(integers(x), sign));
  const F32x16 square = mul(x, x);
  F32x16 p = fma(square, set(-0x1.75e1ccp-8f), set(0x1.52269cp-6f));
  p = fma(p, square, set(-0x1.b83c5ap-5f));
  p = fma(p, square, set(0x1.110726p-3f));
  p = fma(p, square, set(-0x1.555532p-2f));
  const F32x16 small = fma(mul(p, square), magnitude, magnitude);
  const F32x16 growth = exp(add(magnitude, magnitude));
  const F32x16 large = sub(set(1.0f), div(set(2.0f), add(growth, set(1.0f))));
  const F32x16 result = select(greater(set(0.625f), magnitude), small, large);
  return floats(bit_or(integers(result), sign));
}

// 0.5 x (1 + tanh(y)) = x / (1 + e^-2y) with y = sqrt(2/pi) (x + 0.044715 x^3): no cancellation.
SLIPSTREAM_INLINE F32x16 gelu_tanh(const F32x16& x) {
  constexpr double two_root = 1.5957691216057308;  // 2 sqrt(2/pi)
  const F32x16 cubic = fma(mul(x, x), set(float(-two_root * 0.044715)), set(float(-two_root)));
  return div(x, add(set(1.0f), exp(mul(x, cubic))));
}

// log(m 2^e) = e ln 2 + log(1 + f), f = m - 1; log(1 + f) = f - s (f - R) with s = f / (2 + f) and
// R = 2 atanh(s) / s - 2. Below 1 ulp; -infinity at 0, NaN below 0.
inline double log(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  int exponent = 0;
  if (!(x > 0.0) || bits >= 0x7ff0000000000000u)
    return x == 0.0 ? -__builtin_inf() : x > 0.0 || x != x ? x : __builtin_nan("");
  if (bits < 0x0010000000000000u) {
    x *= 0x1p54;
    exponent = -54;
    memcpy(&bits, &x, sizeof bits);
  }
  const int64_t shift = int64_t(bits - 0x3fe6a09e00000000u) >> 52;  // m in [1/sqrt 2, sqrt 2)
  exponent += int(shift);
  bits -= uint64_t(shift) << 52;
  memcpy(&x, &bits, sizeof bits);
  const double f = x - 1.0, s = f / (2.0 + f), z = s * s;
  double series = 0.0;
  for (int k = 10; k > 0; --k) series = __builtin_fma(series, z, 2.0 / (2 * k + 1));
  const double half_square = 0.5 * f * f;
  const double low = __builtin_fma(s, __builtin_fma(series, z, half_square),
                                   double(exponent) * 0x1.cf79abc9e3b3ap-40);
  return __builtin_fma(double(exponent), 0x1.62e42fefap-1, f - (half_square - low));
}

// sin and cos by a two-part pi/2 (106 bits, fused) and Taylor series on |r| <= pi/4: absolute error
// below 3e-16 for |x| up to 2^30.
inline void sine_cosine(double x, double* sine, double* cosine) {
  constexpr double shifter = 0x1.8p52;
  const double shifted = __builtin_fma(x, 0x1.45f306dc9c883p-1, shifter);
  const double n = shifted - shifter;
  uint64_t quadrant;
  memcpy(&quadrant, &shifted, sizeof quadrant);
  double r = __builtin_fma(n, -0x1.921fb54442d18p+0, x);
  r = __builtin_fma(n, -0x1.1a62633145c07p-54, r);
  const double z = r * r;
  double s = 1.0, c = 1.0;
  for (int k = 16; k > 0; k -= 2) {
    s = __builtin_fma(s * z, -1.0 / (k * (k + 1)), 1.0);
    c = __builtin_fma(c * z, -1.0 / (k * (k - 1)), 1.0);
  }
  s *= r;
  const bool swapped = quadrant & 1, negative = quadrant & 2;
  const double first = swapped ? c : s, second = swapped ? s : c;
  *sine = negative ? -first : first;
  *cosine = negative != swapped ? -second : second;
}

}  // namespace slipstream::SLIPSTREAM_LEVEL
