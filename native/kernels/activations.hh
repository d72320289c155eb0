// Prepared activations: what the kernels read of each block of an input row.
//
// int8 code = round to nearest even(x * (127 / amax)), scale = amax / 127 with amax the largest |x|
// of the block; so |x - scale * code| <= scale / 2 up to float rounding. A block whose amax is
// below 2^-100 is all zeros (127 / amax would overflow for subnormals). A block holding NaN or
// infinity has scale NaN and codes 0, so that every output of its row is NaN.
//
// Rows are kept in groups of 16: a group of n rows holds its blocks in order, n records a block, so
// that the records one pass reads are contiguous. float32: [group][column][n rows].
#pragma once

constexpr int kGroupRows = 16;

// Sums of codes come as "offsets": minus the zero point times the sum, in the layout in which a
// level starts its group sums (`Isa::pack_offset`).
struct ActivationBlock32 {
  int8_t codes[32];
  float scale;
  float scaled_sum;   // scale * sum of codes
  int32_t offset8;    // zero points of q4_0, q5_0 and q8_0
  int32_t offset16;
  int32_t offset128;
  int32_t sum16;      // 16 * sum of codes
};

struct ActivationBlock256 {
  int8_t codes[256];
  int32_t offset32[16];  // of each 16 codes
  int32_t offset16[8];   // of each 32 codes
  uint32_t sums[4];      // int16 pairs, sums of 32 codes: groups (0, 2), (1, 3), (4, 6), (5, 7)
  float scale;
  uint32_t sums16[8];    // int16 pairs, sums of 16 codes: of every four groups (0, 2), then (1, 3)
};

// Rows of the group that starts at `first_row`.
INLINE int group_size(int rows, int first_row) {
  const int left = rows - first_row;
  return left < kGroupRows ? left : kGroupRows;
}

// Where block `block` of row `row` lies, in records; also columns of float32 rows, in floats.
INLINE size_t activation_index(int rows, int blocks, int row, int block) {
  const int first = row / kGroupRows * kGroupRows;
  return static_cast<size_t>(first) * blocks +
         static_cast<size_t>(block) * group_size(rows, first) + (row - first);
}
