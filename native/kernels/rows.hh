// From a strip and any number of activation rows to kernel passes over a few rows.
//
// Rows go in groups of 16. With more rows than one pass holds, a chunk of K stays in the
// first-level cache for every pass of a group, while the running sums wait in the tile.
#pragma once

// Rows split over passes as evenly as the limit allows.
struct Pass {
  int passes;
  int rows;
  INLINE int size(int index) const { return rows / passes + (index < rows % passes ? 1 : 0); }
};

INLINE Pass split_rows(int rows, int limit) { return {(rows + limit - 1) / limit, rows}; }

// Sums of blocks [first, last) of a strip, added to tile[kRows][16]. `x` is the record of the
// pass's first row at block `first`; records of the next block lie `step` further. `shared` is
// the buffer of SharingCodes and SharedCodes.
template <class Block>
using PassFunction = void (*)(const uint8_t* strip, int first, int last, const Block* x, int step,
                              float* tile, uint8_t* shared);

template <class Isa, class Type, class Source, int... kRows>
INLINE PassFunction<typename Type::Activation> pass_of(int rows,
                                                       std::integer_sequence<int, kRows...>) {
  static constexpr PassFunction<typename Type::Activation> table[] = {
      Type::template multiply_blocks<Isa, Source, kRows + 1>...};
  return table[rows - 1];
}

// Sharing pays where unpacking costs more than a store and a load: five and six bits.
template <class Isa, class Type>
constexpr bool shares_codes() {
  return Isa::kSharesCodes && (Type::Codec::kPlanes == 5 || Type::Codec::kPlanes == 6);
}

template <class Isa>
INLINE Pass split_rows(int rows) {
  return split_rows(rows, rows <= Isa::kMaxRowsAlone ? Isa::kMaxRowsAlone : Isa::kMaxRows);
}

template <class Isa, class Type>
INLINE PassFunction<typename Type::Activation> choose_pass(const Pass& pass, int index) {
  using Rows = std::make_integer_sequence<int, Isa::kMaxRows>;
  using RowsAlone = std::make_integer_sequence<int, Isa::kMaxRowsAlone>;
  const int rows = pass.size(index);
  if constexpr (shares_codes<Isa, Type>()) {
    if (index > 0) return pass_of<Isa, Type, SharedCodes>(rows, Rows());
    if (pass.passes > 1) return pass_of<Isa, Type, SharingCodes>(rows, Rows());
  }
  return pass_of<Isa, Type, PackedCodes>(rows, RowsAlone());
}

template <class Isa, class Type>
INLINE void multiply_group(const uint8_t* strip, int blocks, const typename Type::Activation* x,
                           int rows, float* tile) {
  constexpr int kChunkBytes = Type::kChunkBlocks * Type::kBlockElements * kStripRows;
  alignas(64) uint8_t shared[shares_codes<Isa, Type>() ? kChunkBytes : 1];
  const Pass pass = split_rows<Isa>(rows);
  const int chunk = pass.passes == 1 ? blocks : Type::kChunkBlocks;
  for (int first = 0; first < blocks; first += chunk) {
    const int last = blocks - first < chunk ? blocks : first + chunk;
    const auto* records = x + static_cast<size_t>(first) * rows;
    for (int p = 0, row = 0; p < pass.passes; row += pass.size(p++)) {
      const auto kernel = choose_pass<Isa, Type>(pass, p);
      kernel(strip, first, last, records + row, rows, tile + row * kStripRows, shared);
    }
  }
}

template <class Isa, class Type>
void multiply_strip(const uint8_t* strip, int columns, const void* activations, int rows,
                    float* tile) {
  const int blocks = columns / Type::kBlockElements;
  auto records = static_cast<const typename Type::Activation*>(activations);
  memset(tile, 0, sizeof(float) * kStripRows * rows);
  for (int row = 0; row < rows; row += kGroupRows) {
    multiply_group<Isa, Type>(strip, blocks, records + static_cast<size_t>(row) * blocks,
                              group_size(rows, row), tile + row * kStripRows);
  }
}
