// F32, F16 and BF16 weights: a strip holds one vector of 16 weights per column.
//
// Each output keeps two running sums, of the even and of the odd columns, in column order with one
// fma a column; the result is even + odd. Any number of columns is allowed.
#pragma once

template <class Type>
struct FloatWeights {
  static constexpr int kBlockElements = 1;
  static constexpr int kChunkColumns = 128;

  template <class Isa, int kRows>
  static void multiply_columns(const uint8_t* strip, int first, int last, const float* x, int step,
                               float* even, float* odd) {
    if constexpr (kRows <= Isa::kMaxPairedFloatRows) {
      add_columns<Isa, kRows, 2>(strip, first, last, x, step, even, odd);
    } else {
      add_columns<Isa, kRows, 1>(strip, first, last, x, step, even, nullptr);
      add_columns<Isa, kRows, 1>(strip, first + 1, last, x + step, step, odd, nullptr);
    }
  }

  // Every second column from `first`, and with two sums the columns between them.
  template <class Isa, int kRows, int kSums>
  static INLINE void add_columns(const uint8_t* strip, int first, int last, const float* x,
                                 int step, float* even, float* odd) {
    typename Isa::Floats sums[kSums][kRows];
    UNROLL for (int r = 0; r < kRows; ++r) {
      sums[0][r] = Isa::load_floats(even + r * kStripRows);
      if constexpr (kSums == 2) sums[1][r] = Isa::load_floats(odd + r * kStripRows);
    }
    int k = first;
    for (; k + 1 < last; k += 2, x += 2 * size_t(step)) {
      Isa::prefetch(strip + k * kColumnBytes() + kPrefetchBytes);
      if (kColumnBytes() == 64) Isa::prefetch(strip + (k + 1) * kColumnBytes() + kPrefetchBytes);
      add_column<Isa>(strip, k, x, sums[0]);
      if constexpr (kSums == 2) add_column<Isa>(strip, k + 1, x + step, sums[1]);
    }
    if (k < last) add_column<Isa>(strip, k, x, sums[0]);
    UNROLL for (int r = 0; r < kRows; ++r) {
      Isa::store_floats(even + r * kStripRows, sums[0][r]);
      if constexpr (kSums == 2) Isa::store_floats(odd + r * kStripRows, sums[1][r]);
    }
  }

  static constexpr size_t kColumnBytes() { return size_t{kStripRows} * Type::kBlockBytes; }

  template <class Isa, int kRows>
  static INLINE void add_column(const uint8_t* strip, int k, const float* x,
                                typename Isa::Floats (&sums)[kRows]) {
    const auto weights = Type::template load<Isa>(strip + k * kColumnBytes());
    UNROLL for (int r = 0; r < kRows; ++r) {
      sums[r] = Isa::fma(weights, Isa::splat(x[r]), sums[r]);
    }
  }

  static void repack_block(const uint8_t* const (&rows)[kStripRows], int column, uint8_t* strip) {
    for (int lane = 0; lane < kStripRows; ++lane) {
      memcpy(strip + column * kColumnBytes() + lane * Type::kBlockBytes,
             rows[lane], Type::kBlockBytes);
    }
  }

  static void dequantise_source_block(const uint8_t* source, float* out) {
    *out = Type::value(source);
  }

  static void dequantise_packed_block(const uint8_t* strip, int column, int lane, float* out) {
    *out = Type::value(strip + column * kColumnBytes() + lane * Type::kBlockBytes);
  }
};

using FloatPass = void (*)(const uint8_t* strip, int first, int last, const float* x, int step,
                           float* even, float* odd);

template <class Isa, class Type, int... kRows>
INLINE FloatPass choose_float_pass(int rows, std::integer_sequence<int, kRows...>) {
  static constexpr FloatPass table[] = {Type::template multiply_columns<Isa, kRows + 1>...};
  return table[rows - 1];
}

template <class Isa, class Type>
void multiply_float_group(const uint8_t* strip, int columns, const float* x, int rows,
                          float* tile) {
  alignas(64) float even[kGroupRows * kStripRows] = {};
  alignas(64) float odd[kGroupRows * kStripRows] = {};
  const Pass pass = split_rows(rows, Isa::kMaxFloatRows);
  const int chunk = rows <= Isa::kMaxPairedFloatRows ? columns : Type::kChunkColumns;
  for (int first = 0; first < columns; first += chunk) {
    const int last = columns - first < chunk ? columns : first + chunk;
    for (int p = 0, row = 0; p < pass.passes; row += pass.size(p++)) {
      const auto kernel = choose_float_pass<Isa, Type>(
          pass.size(p), std::make_integer_sequence<int, Isa::kMaxFloatRows>());
      kernel(strip, first, last, x + size_t(first) * rows + row, rows, even + row * kStripRows,
             odd + row * kStripRows);
    }
  }
  for (int i = 0; i < rows * kStripRows; ++i) tile[i] = even[i] + odd[i];
}

template <class Isa, class Type>
void multiply_float_strip(const uint8_t* strip, int columns, const void* activations, int rows,
                          float* tile) {
  auto x = static_cast<const float*>(activations);
  for (int row = 0; row < rows; row += kGroupRows) {
    multiply_float_group<Isa, Type>(strip, columns, x + size_t(row) * columns,
                                    group_size(rows, row), tile + row * kStripRows);
  }
}
