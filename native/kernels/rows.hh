// From a strip and any number of activation rows to kernel passes over a few rows.
//
// Rows go in groups of 16. With more rows than one pass holds, a chunk of K stays in the
// first-level cache, unpacked, for every pass of every group, while the running sums wait in the
// tile.
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

// Whether several passes over a chunk share its codes: where unpacking once costs less than it
// saves. Codes of eight bits need none; those of four bits save too little in two short passes;
// types with products of their own (kSharesCodes = false) unpack in every pass.
template <class Isa, class Type>
constexpr bool shares_codes() {
  return Isa::kSharesCodes && Type::kSharesCodes && Type::Codec::kPlanes != 8;
}

constexpr int least_sharing_rows(int planes) { return planes == 4 ? 9 : 0; }

// The kernel of a pass of `rows` rows over a chunk of `all` rows.
template <class Isa, class Type>
INLINE PassFunction<typename Type::Activation> choose_pass(int rows, bool first, int all) {
  using Rows = std::make_integer_sequence<int, Isa::kMaxRows>;
  if constexpr (shares_codes<Isa, Type>()) {
    if (all >= least_sharing_rows(Type::Codec::kPlanes)) {
      if (!first) return pass_of<Isa, Type, SharedCodes>(rows, Rows());
      return pass_of<Isa, Type, SharingCodes>(rows, Rows());
    }
  }
  return pass_of<Isa, Type, PackedCodes>(rows, Rows());
}

// Many-row kernel: every row meets a chunk of K before the next chunk is unpacked.
template <class Isa, class Type>
INLINE void multiply_chunks(const uint8_t* strip, int blocks, const typename Type::Activation* x,
                            int rows, float* tile) {
  constexpr int kChunkGroups = Type::kChunkBlocks * Type::kBlockElements / 32;
  constexpr int kChunkBytes = kChunkGroups * Type::kSharedGroupBytes;
  alignas(64) uint8_t shared[shares_codes<Isa, Type>() ? kChunkBytes : 1];
  for (int first = 0; first < blocks; first += Type::kChunkBlocks) {
    const int last = blocks - first < Type::kChunkBlocks ? blocks : first + Type::kChunkBlocks;
    for (int start = 0; start < rows; start += kGroupRows) {
      const int group = group_size(rows, start);
      const Pass pass = split_rows(group, Isa::kMaxRows);
      const auto* records = x + static_cast<size_t>(start) * blocks +
                            static_cast<size_t>(first) * group;
      for (int p = 0, row = 0; p < pass.passes; row += pass.size(p++)) {
        const auto kernel = choose_pass<Isa, Type>(pass.size(p), start + row == 0, rows);
        kernel(strip, first, last, records + row, group, tile + (start + row) * kStripRows,
               shared);
      }
    }
  }
}

// `records`: the first of the rows' groups of 16.
template <class Isa, class Type>
INLINE void multiply_records(const uint8_t* strip, int blocks,
                             const typename Type::Activation* records, int rows, float* tile) {
  memset(tile, 0, sizeof(float) * kStripRows * rows);
  if (rows > Isa::kMaxRowsAlone) {
    return multiply_chunks<Isa, Type>(strip, blocks, records, rows, tile);
  }
  using RowsAlone = std::make_integer_sequence<int, Isa::kMaxRowsAlone>;
  const auto kernel = pass_of<Isa, Type, PackedCodes>(rows, RowsAlone());
  kernel(strip, 0, blocks, records, rows, tile, nullptr);
}

template <class Isa, class Type>
void multiply_strip(const uint8_t* strip, int columns, const void* activations, int rows,
                    float* tile) {
  multiply_records<Isa, Type>(strip, columns / Type::kBlockElements,
                              static_cast<const typename Type::Activation*>(activations), rows,
                              tile);
}
