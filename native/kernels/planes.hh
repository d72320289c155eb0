// The a16 precision: two int8 records a row and block, `hi` and `lo`, whose products are added.
//
// With t = x * (127 / amax) in float: hi = t rounded to nearest even, lo = 254 * (t - hi) likewise,
// scale of hi = amax / 127 (its record is that of a8), scale of lo = (scale of hi) / 254. t - hi is
// exact and at most 1/2, so |lo| <= 127, which codecs.hh relies on as for hi. With u = 2^-24,
//   |x - (scale_hi * hi + scale_lo * lo)| <= scale_lo * (1/2 + 128u) + 4u * amax
// the last term for the roundings of t and of the scales. Blocks of zeros and of NaN are as in a8.
//
// The two records of a block are neighbours: row r is prepared rows 2r and 2r + 1 of 2 * rows.
// output = (product of the hi records) + (product of the lo records), one float addition; each
// product has the order of sums that its type defines.
#pragma once

constexpr int kPlanes = 2;
constexpr float kPlaneRatio = 254.0f;

INLINE void round_low_codes(const float* x, int n, float inverse, int8_t* codes) {
  for (int i = 0; i < n; ++i) {
    const float exact = x[i] * inverse;
    const float rest = exact - (exact + 12582912.0f - 12582912.0f);
    const float shifted = rest * kPlaneRatio + 12582912.0f;
    codes[i] = static_cast<int8_t>(float_bits(shifted) - 0x4b400000);
  }
}

// The scale of `hi` says which blocks have no codes: 0 and NaN.
template <class Isa, class Block, int kElements>
INLINE void prepare_planes(const float* x, Block* hi, Block* lo) {
  prepare_block<Isa>(x, hi);
  lo->scale = hi->scale / kPlaneRatio;
  if (lo->scale > 0.0f) {
    const float maximum = bits_float(largest_magnitude_bits(x, kElements));
    round_low_codes(x, kElements, 127.0f / maximum, lo->codes);
  } else {
    memset(lo->codes, 0, kElements);
  }
  add_sums<Isa>(lo);
}

template <class Isa, class Block, int kElements>
void prepare_plane_rows(const float* x, size_t stride, int rows, int columns, int first, int last,
                        void* activations) {
  const int blocks = columns / kElements;
  auto out = static_cast<Block*>(activations);
  for (int row = first; row < last; ++row) {
    for (int b = 0; b < blocks; ++b) {
      Block* hi = out + activation_index(kPlanes * rows, blocks, kPlanes * row, b);
      prepare_planes<Isa, Block, kElements>(
          x + row * stride + static_cast<size_t>(b) * kElements, hi, hi + 1);
    }
  }
}

constexpr int kPlaneRecords = 4 * kGroupRows;  // prepared rows at a time

// As multiply_strip, on `rows` rows of two planes.
template <class Isa, class Type>
void multiply_plane_strip(const uint8_t* strip, int columns, const void* activations, int rows,
                          float* tile) {
  const int blocks = columns / Type::kBlockElements, all = kPlanes * rows;
  auto records = static_cast<const typename Type::Activation*>(activations);
  alignas(64) float planes[kPlaneRecords * kStripRows];
  for (int row = 0; row < all; row += kPlaneRecords) {
    const int count = all - row < kPlaneRecords ? all - row : kPlaneRecords;
    multiply_records<Isa, Type>(strip, blocks, records + static_cast<size_t>(row) * blocks, count,
                                planes);
    for (int r = 0; r < count; r += kPlanes, tile += kStripRows) {
      const float* hi = planes + r * kStripRows;
      for (int i = 0; i < kStripRows; ++i) tile[i] = hi[i] + hi[kStripRows + i];
    }
  }
}
