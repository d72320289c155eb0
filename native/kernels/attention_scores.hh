// Scores of the keys of one tile, and their exponentials over a split.
#pragma once

#include "attention_work.hh"

namespace slipstream::SLIPSTREAM_LEVEL {

// Dots of `Heads` queries with `Keys` rows, folded once: folded[head][16][8].
template <class Row, int Heads, int Keys>
SLIPSTREAM_INLINE void dot_block(const float* queries, const typename Row::Element* const* keys,
                                 int width, float* folded) {
  F32x16 sum[Heads][Keys];
  for (auto& row : sum)
    for (F32x16& value : row) value = zero();
  for (int i = 0; i < width; i += kLanes) {
    F32x16 key[Keys];
    for (int k = 0; k < Keys; ++k) key[k] = Row::load(keys[k], i);
    if (Heads > 1)
      for (F32x16& value : key) pin(value);
    for (int h = 0; h < Heads; ++h) {
      F32x16 query = load(queries + h * width + i);
      if (Keys > 1) pin(query);
      for (int k = 0; k < Keys; ++k) sum[h][k] = fma(query, key[k], sum[h][k]);
    }
  }
  for (int h = 0; h < Heads; ++h)
    for (int k = 0; k < Keys; ++k) store_folded_once(folded + (h * kTileKeys + k) * 8, sum[h][k]);
}

template <class Row, int Heads, int Keys>
SLIPSTREAM_OUT_OF_LINE void score_block(const AttentionWork& work, const float* queries,
                                        const TileAddresses<Row>& keys, float* weights) {
  alignas(64) float folded[Heads * kTileKeys * 8];
  for (int k = 0; k < kTileKeys; k += Keys)
    dot_block<Row, Heads, Keys>(queries, keys.row + k, work.width, folded + k * 8);
  const F32x16 scale = set(work.tasks->scale);
  for (int h = 0; h < Heads; ++h)
    store(weights + h * kSplitPositions, mul(fold_rows(folded + h * kTileKeys * 8), scale));
}

// weights[query][16] = scale * query . key, for all places of the tile.
template <class Row>
SLIPSTREAM_INLINE void score_queries(const AttentionWork& work, size_t query, size_t end,
                                     const TileAddresses<Row>& keys, int place) {
  const auto block = [&](auto score, size_t heads) {
    score(work, work.queries + query * size_t(work.width), keys,
          work.weights + query * kSplitPositions + place);
    query += heads;
  };
  if (end - query == 4) return block(score_block<Row, 4, 1>, 4);
  if (end - query == 3) return block(score_block<Row, 3, 1>, 3);
  while (query + 2 <= end) block(score_block<Row, 2, 2>, 2);
  if (query < end) block(score_block<Row, 1, 4>, 1);
}

// -infinity where a row has no key.
inline void hide_missing(const AttentionWork& work, int first, int last, Range keys) {
  const int tile = keys.begin / kTileKeys * kTileKeys;
  const Mask16 present = lane_range(keys.begin - tile, keys.end - tile);
  float* weights = work.weights + size_t(first * work.heads) * kSplitPositions +
                   tile % kSplitPositions;
  for (int i = (last - first) * work.heads; i > 0; --i, weights += kSplitPositions)
    store(weights, select(present, load(weights), set(-__builtin_inff())));
}

template <class Row>
SLIPSTREAM_INLINE void score_tile(const AttentionWork& work, int tile) {
  const int place = tile % kSplitPositions;
  each_tile_rows(work, tile, [&](const TileRows& run) {
    const TileAddresses<Row> keys = addresses<Row>(work, run, work.tasks->keys);
    const size_t query = size_t(run.first * work.heads), end = size_t(run.last * work.heads);
    if (reads_in_place(work, run))
      score_queries(work, query, end, keys, place);
    else
      score_queries(work, query, end, convert(work, run.keys, keys), place);
    each_equal_keys(work, run, tile, [&](int first, int last, Range present) {
      if (present.end - present.begin < kTileKeys) hide_missing(work, first, last, present);
    });
  });
}

// Scores to exponentials in place, over the whole tiles of places begin .. end - 1 of the split.
inline void exponentials(float* weights, Range places, float* peak, float* total) {
  F32x16 best = set(-__builtin_inff()), sum = zero();
  for (int i = places.begin; i < places.end; i += kLanes) best = maximum(load(weights + i), best);
  *peak = fold_maximum(best);
  for (int i = places.begin; i < places.end; i += kLanes) {
    const F32x16 weight = exp(sub(load(weights + i), set(*peak)));
    store(weights + i, weight);
    sum = add(sum, weight);
  }
  *total = fold(sum);
}

inline void softmax_row(const AttentionWork& work, const Part& part, int row, Range keys) {
  const int split = keys.begin / kSplitPositions * kSplitPositions;
  const Range places{(keys.begin - split) / kTileKeys * kTileKeys, keys.end - split};
  for (int head = 0; head < work.heads; ++head) {
    const size_t query = size_t(row * work.heads + head);
    float* state = part.state + 2 * query;
    exponentials(work.weights + query * kSplitPositions, places, state, state + 1);
  }
}

}  // namespace slipstream::SLIPSTREAM_LEVEL
