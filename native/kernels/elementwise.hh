// Norms, rotary embedding and element-wise kernels of one row. Included once per level.
#pragma once

#include "math.hh"

namespace slipstream::SLIPSTREAM_LEVEL {

// out[i] = formula(x[i]); the last partial block runs the same formula on zero-padded lanes.
template <class Formula>
SLIPSTREAM_INLINE void map(const float* x, int n, float* out, Formula formula) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, formula(load(x + i)));
  if (i < n) store_first(out + i, n - i, formula(load_first(x + i, n - i)));
}

template <class Formula>
SLIPSTREAM_INLINE void map(const float* a, const float* b, int n, float* out, Formula formula) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, formula(load(a + i), load(b + i)));
  if (i < n)
    store_first(out + i, n - i, formula(load_first(a + i, n - i), load_first(b + i, n - i)));
}

inline float sum_of_squares(const float* x, int width) {
  F32x16 sum = zero();
  int i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    const F32x16 v = load(x + i);
    sum = fma(v, v, sum);
  }
  const F32x16 v = load_first(x + i, width - i);
  return fold(fma(v, v, sum));
}

// x / sqrt(mean x^2 + epsilon) * weight, in each of `groups` runs of `width`.
inline void rms_norm(const float* x, const float* weight, float epsilon, int groups, int width,
                     float* out) {
  for (int group = 0; group < groups; ++group, x += width, out += width) {
    const float mean = sum_of_squares(x, width) / float(width);
    const F32x16 factor = set(1.0f / __builtin_sqrtf(mean + epsilon));
    if (weight)
      map(x, weight, width, out,
          [&](const F32x16& v, const F32x16& w) { return mul(mul(v, factor), w); });
    else
      map(x, width, out, [&](const F32x16& v) { return mul(v, factor); });
  }
}

// cosine[i] = magnitude cos(position frequencies[i]), likewise sine.
inline void rope_table(int position, const double* frequencies, int pairs, float magnitude,
                       float* cosine, float* sine) {
  for (int i = 0; i < pairs; ++i) {
    double s, c;
    sine_cosine(double(position) * frequencies[i], &s, &c);
    cosine[i] = float(c * double(magnitude));
    sine[i] = float(s * double(magnitude));
  }
}

SLIPSTREAM_INLINE void rotate(float first, float second, float cosine, float sine, float* a,
                              float* b) {
  *a = __builtin_fmaf(first, cosine, -(second * sine));
  *b = __builtin_fmaf(first, sine, second * cosine);
}

inline void rotate_adjacent(const float* x, int pairs, const float* cosine, const float* sine,
                            float* out) {
  for (int i = 0; i < pairs; ++i)
    rotate(x[2 * i], x[2 * i + 1], cosine[i], sine[i], out + 2 * i, out + 2 * i + 1);
}

inline void rotate_halves(const float* x, int pairs, const float* cosine, const float* sine,
                          float* out) {
  for (int i = 0; i < pairs; i += kLanes) {
    const int count = pairs - i < kLanes ? pairs - i : kLanes;
    const F32x16 first = load_first(x + i, count), second = load_first(x + pairs + i, count);
    const F32x16 c = load_first(cosine + i, count), s = load_first(sine + i, count);
    store_first(out + i, count, fma(first, c, negate(mul(second, s))));
    store_first(out + pairs + i, count, fma(first, s, mul(second, c)));
  }
}

inline void rope(const float* x, int heads, int head_dim, int rotary_width, bool neox,
                 const float* cosine, const float* sine, float* out) {
  for (int head = 0; head < heads; ++head, x += head_dim, out += head_dim) {
    (neox ? rotate_halves : rotate_adjacent)(x, rotary_width / 2, cosine, sine, out);
    if (out != x)
      memcpy(out + rotary_width, x + rotary_width, size_t(head_dim - rotary_width) * sizeof(float));
  }
}

inline void add(const float* a, const float* b, int n, float* out) {
  map(a, b, n, out, [](const F32x16& x, const F32x16& y) { return add(x, y); });
}

inline void scale(const float* x, float factor, int n, float* out) {
  const F32x16 f = set(factor);
  map(x, n, out, [&](const F32x16& v) { return mul(v, f); });
}

inline void softcap(const float* x, float cap, int n, float* out) {
  const F32x16 limit = set(cap);
  map(x, n, out, [&](const F32x16& v) { return mul(limit, tanh(div(v, limit))); });
}

inline void gated(Activation activation, const float* gate, const float* up, int n, float* out) {
  if (activation == Activation::silu)
    map(gate, up, n, out, [](const F32x16& g, const F32x16& u) { return mul(silu(g), u); });
  else
    map(gate, up, n, out, [](const F32x16& g, const F32x16& u) { return mul(gelu_tanh(g), u); });
}

inline void exp_row(const float* x, int n, float* out) {
  map(x, n, out, [](const F32x16& v) { return exp(v); });
}

inline void tanh_row(const float* x, int n, float* out) {
  map(x, n, out, [](const F32x16& v) { return tanh(v); });
}

inline void sigmoid_row(const float* x, int n, float* out) {
  map(x, n, out, [](const F32x16& v) { return sigmoid(v); });
}

inline void store_half_row(const float* x, int n, uint16_t* out) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) store_half(out + i, load(x + i));
  if (i == n) return;
  uint16_t block[kLanes];
  store_half(block, load_first(x + i, n - i));
  memcpy(out + i, block, size_t(n - i) * sizeof(uint16_t));
}

// The first `count` halves at `x`, the other lanes zero.
SLIPSTREAM_INLINE F32x16 load_half_first(const uint16_t* x, int count) {
  uint16_t block[kLanes] = {};
  memcpy(block, x, size_t(count) * sizeof(uint16_t));
  return load_half(block);
}

inline void load_half_row(const uint16_t* x, int n, float* out) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, load_half(x + i));
  if (i < n) store_first(out + i, n - i, load_half_first(x + i, n - i));
}

}  // namespace slipstream::SLIPSTREAM_LEVEL
