// The parts of the vector kernels without an instruction set: sizes, counters, candidate selection.
#include "vector.hh"

#include <algorithm>

#include "candidates.hh"

namespace slipstream {

size_t attention_rows_scratch_floats(int rows, int heads, int head_dim) {
  const size_t width = (size_t(head_dim) + 15) / 16 * 16;
  const size_t tile = 16 * width, alignment = 16;
  const size_t part = attention_part_floats(rows, heads, head_dim);
  return alignment + tile + part + size_t(rows) * size_t(heads) * (2 * width + kSplitPositions + 2);
}

size_t attention_part_floats(int rows, int heads, int head_dim) {
  const size_t width = (size_t(head_dim) + 15) / 16 * 16;
  return (size_t(rows) * size_t(heads) * (width + 2) + 15) / 16 * 16;
}

size_t attention_scratch_floats(int heads, int head_dim) {
  return attention_rows_scratch_floats(1, heads, head_dim);
}

void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
  uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
  uint32_t k[2] = {key[0], key[1]};
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t(0xd2511f53u) * c[0], second = uint64_t(0xcd9e8d57u) * c[2];
    const uint32_t next[4] = {uint32_t(second >> 32) ^ c[1] ^ k[0], uint32_t(second),
                              uint32_t(first >> 32) ^ c[3] ^ k[1], uint32_t(first)};
    std::copy(next, next + 4, c);
    k[0] += 0x9e3779b9u;
    k[1] += 0xbb67ae85u;
  }
  std::copy(c, c + 4, out);
}

void keep_best(CandidateKey* keys, int total, int count) {
  if (count > 0 && count < total) std::nth_element(keys, keys + count - 1, keys + total);
}

void sort_candidates(CandidateKey* keys, int total) { std::sort(keys, keys + total); }

}  // namespace slipstream
