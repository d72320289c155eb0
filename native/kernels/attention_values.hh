// Weighted values of the keys of one tile, and the merge of the splits.
#pragma once

#include "attention_work.hh"

namespace slipstream::SLIPSTREAM_LEVEL {

// sum[head] += weight(key) value(key) for the places of one tile, in ascending order.
template <class Row, int Heads, int Blocks>
SLIPSTREAM_INLINE void weigh_block(const float* weights, const TileAddresses<Row>& values,
                                   Range places, int width, int i, float* out) {
  F32x16 sum[Heads][Blocks];
  for (int h = 0; h < Heads; ++h)
    for (int b = 0; b < Blocks; ++b) sum[h][b] = load(out + h * width + i + b * kLanes);
  for (int k = places.begin; k < places.end; ++k) {
    const float* weight = weights + k;
    for (int b = 0; b < Blocks; ++b) {
      F32x16 value = Row::load(values.row[k], i + b * kLanes);
      if (Heads > 1) pin(value);
      // Of three heads a weight is read again for each block: the registers are full of sums.
      if (Heads > 2) asm("" : "+r"(weight));
      for (int h = 0; h < Heads; ++h)
        sum[h][b] = fma(set(weight[h * kSplitPositions]), value, sum[h][b]);
    }
  }
  for (int h = 0; h < Heads; ++h)
    for (int b = 0; b < Blocks; ++b) store(out + h * width + i + b * kLanes, sum[h][b]);
}

template <class Row, int Heads, int Blocks>
SLIPSTREAM_OUT_OF_LINE void weigh_heads(const float* weights, const TileAddresses<Row>& values,
                                        Range places, int width, float* out) {
  int i = 0;
  for (; i + Blocks * kLanes <= width; i += Blocks * kLanes)
    weigh_block<Row, Heads, Blocks>(weights, values, places, width, i, out);
  for (; i < width; i += kLanes)
    weigh_block<Row, Heads, 1>(weights, values, places, width, i, out);
}

template <class Row>
SLIPSTREAM_INLINE void weigh_queries(const AttentionWork& work, const Part& part, size_t query,
                                     size_t end, const TileAddresses<Row>& values, Range keys) {
  const int tile = keys.begin / kTileKeys * kTileKeys;
  const Range places{keys.begin - tile, keys.end - tile};
  const auto block = [&](auto weigh, size_t heads) {
    weigh(work.weights + query * kSplitPositions + tile % kSplitPositions, values, places,
          work.width, part.values + query * size_t(work.width));
    query += heads;
  };
  if (end - query == 4) return block(weigh_heads<Row, 4, 1>, 4);
  if (end - query == 3) return block(weigh_heads<Row, 3, 2>, 3);
  while (query + 2 <= end) block(weigh_heads<Row, 2, 2>, 2);
  if (query < end) block(weigh_heads<Row, 1, 4>, 1);
}

template <class Row>
SLIPSTREAM_INLINE void weigh_tile(const AttentionWork& work, const Part& part, int tile) {
  each_tile_rows(work, tile, [&](const TileRows& run) {
    const TileAddresses<Row> values = addresses<Row>(work, run, work.tasks->values);
    const auto weigh = [&](const auto& rows) {
      each_equal_keys(work, run, tile, [&](int first, int last, Range keys) {
        weigh_queries(work, part, size_t(first * work.heads), size_t(last * work.heads), rows,
                      keys);
      });
    };
    if (reads_in_place(work, run))
      weigh(values);
    else
      weigh(convert(work, run.keys, values));
  });
}

SLIPSTREAM_INLINE float first_lane(const F32x16& v) {
  alignas(64) float lane[kLanes];
  store(lane, v);
  return lane[0];
}

inline void start_total(const AttentionWork& work) {
  memset(work.total.values, 0, work.count() * size_t(work.width) * sizeof(float));
  for (size_t query = 0; query < work.count(); ++query) {
    work.total.state[2 * query] = -__builtin_inff();
    work.total.state[2 * query + 1] = 0.0f;
  }
}

// total = total e^(m - M) + part e^(p - M), M the larger of the two maxima; likewise the sum.
inline void merge_query(const AttentionWork& work, const Part& part, size_t query) {
  float* total = work.total.values + query * size_t(work.width);
  const float* values = part.values + query * size_t(work.width);
  const float* fresh_state = part.state + 2 * query;
  float* state = work.total.state + 2 * query;
  const float peak = fresh_state[0] > state[0] ? fresh_state[0] : state[0];
  const F32x16 old = exp(set(state[0] - peak)), fresh = exp(set(fresh_state[0] - peak));
  for (int i = 0; i < work.width; i += kLanes)
    store(total + i, fma(load(total + i), old, mul(load(values + i), fresh)));
  state[0] = peak;
  state[1] = first_lane(fma(set(state[1]), old, mul(set(fresh_state[1]), fresh)));
}

// Merges the results of one split for the rows that have keys in it.
inline void merge_split(const AttentionWork& work, const Part& part, int split) {
  for (int row = 0; row < work.rows; ++row) {
    if (keys_within(work.tasks[row], split, split + kSplitPositions).empty()) continue;
    for (int head = 0; head < work.heads; ++head)
      merge_query(work, part, size_t(row * work.heads + head));
  }
}

inline void finish(const AttentionWork& work) {
  const size_t dim = size_t(work.head_dim);
  for (int row = 0; row < work.rows; ++row)
    for (int head = 0; head < work.heads; ++head) {
      const size_t query = size_t(row * work.heads + head);
      scale(work.total.values + query * size_t(work.width), 1.0f / work.total.state[2 * query + 1],
            work.head_dim, work.tasks[row].out + size_t(head) * dim);
    }
}

}  // namespace slipstream::SLIPSTREAM_LEVEL
