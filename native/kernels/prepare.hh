// Rounding input rows to the records of activations.hh; plain loops that the compiler vectorises.
#pragma once

constexpr int32_t kQuietNanBits = 0x7fc00000;
constexpr int32_t kSmallestMaximumBits = 0x0d800000;  // 2^-100

// The bits of |x| order as |x| does, NaN above all.
INLINE int32_t largest_magnitude_bits(const float* x, int n) {
  int32_t largest = 0;
  for (int i = 0; i < n; ++i) {
    const int32_t bits = float_bits(x[i]) & 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

// Adding 1.5 * 2^23 rounds to an integer, ties to even, that stands in the low bits.
INLINE void round_codes(const float* x, int n, float inverse, int8_t* codes) {
  for (int i = 0; i < n; ++i) {
    const float shifted = x[i] * inverse + 12582912.0f;
    codes[i] = static_cast<int8_t>(float_bits(shifted) - 0x4b400000);
  }
}

// Fills `codes` and returns the scale.
INLINE float quantise(const float* x, int n, int8_t* codes) {
  const int32_t largest = largest_magnitude_bits(x, n);
  if (largest < kSmallestMaximumBits || largest >= kInfinityBits) {
    memset(codes, 0, n);
    return largest < kInfinityBits ? 0.0f : bits_float(kQuietNanBits);
  }
  const float maximum = bits_float(largest);
  round_codes(x, n, 127.0f / maximum, codes);
  return maximum / 127.0f;
}

struct PairSums {
  int first;   // of codes 0 and 1 of every four
  int second;  // of codes 2 and 3
};

INLINE PairSums pair_sums(const int8_t* codes, int n) {
  PairSums sums{0, 0};
  for (int i = 0; i < n; i += 4) {
    sums.first += codes[i] + codes[i + 1];
    sums.second += codes[i + 2] + codes[i + 3];
  }
  return sums;
}

template <class Isa>
INLINE int32_t zero_point(int offset, PairSums sums) {
  return Isa::pack_offset(-offset * sums.first, -offset * sums.second);
}

// Fills in what a record holds beside its codes and scale.
template <class Isa>
INLINE void add_sums(ActivationBlock32* out) {
  const PairSums sums = pair_sums(out->codes, 32);
  const int sum = sums.first + sums.second;
  out->scaled_sum = out->scale * static_cast<float>(sum);
  out->offset8 = zero_point<Isa>(8, sums);
  out->offset16 = zero_point<Isa>(16, sums);
  out->offset128 = -128 * sum;
  out->sum16 = 16 * sum;
}

INLINE uint32_t pack_pair(int low, int high) {
  return static_cast<uint32_t>(low & 0xffff) | static_cast<uint32_t>(high & 0xffff) << 16;
}

template <class Isa>
INLINE void add_sums(ActivationBlock256* out) {
  int sums[8], sums16[16];
  for (int g = 0; g < 8; ++g) {
    const PairSums first = pair_sums(out->codes + g * 32, 16);
    const PairSums second = pair_sums(out->codes + g * 32 + 16, 16);
    const PairSums both{first.first + second.first, first.second + second.second};
    out->offset32[2 * g] = zero_point<Isa>(32, first);
    out->offset32[2 * g + 1] = zero_point<Isa>(32, second);
    out->offset16[g] = zero_point<Isa>(16, both);
    sums[g] = both.first + both.second;
    sums16[2 * g] = first.first + first.second;
    sums16[2 * g + 1] = second.first + second.second;
  }
  for (int p = 0; p < 4; ++p) {
    const int g = p / 2 * 4 + p % 2;
    out->sums[p] = pack_pair(sums[g], sums[g + 2]);
  }
  for (int p = 0; p < 8; ++p) {
    const int g = p / 2 * 4 + p % 2;
    out->sums16[p] = pack_pair(sums16[g], sums16[g + 2]);
  }
}

template <class Isa, class Block>
INLINE void prepare_block(const float* x, Block* out) {
  out->scale = quantise(x, sizeof(out->codes), out->codes);
  add_sums<Isa>(out);
}

template <class Isa, class Block, int kElements>
void prepare_rows(const float* x, size_t stride, int rows, int columns, int first, int last,
                  void* activations) {
  const int blocks = columns / kElements;
  auto out = static_cast<Block*>(activations);
  for (int row = first; row < last; ++row) {
    for (int b = 0; b < blocks; ++b) {
      prepare_block<Isa>(x + row * stride + static_cast<size_t>(b) * kElements,
                         out + activation_index(rows, blocks, row, b));
    }
  }
}

inline void prepare_float_rows(const float* x, size_t stride, int rows, int columns, int first,
                               int last, void* activations) {
  auto out = static_cast<float*>(activations);
  for (int row = first; row < last; ++row) {
    const size_t start = activation_index(rows, columns, row, 0);
    const size_t step = group_size(rows, row / kGroupRows * kGroupRows);
    for (int k = 0; k < columns; ++k) out[start + k * step] = x[row * stride + k];
  }
}
