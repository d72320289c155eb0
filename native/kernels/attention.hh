// Attention of the query heads of one key/value head over logical keys. Included once per level.
//
// Per split of 256 logical positions: scores tile by tile (16 keys, each converted from half once
// for all rows and heads), maximum, exponentials and their sum in 16 lanes by logical position,
// then the weighted values key after key; splits are merged in ascending order.
#pragma once

#include "elementwise.hh"

namespace slipstream::SLIPSTREAM_LEVEL {

constexpr int kTileKeys = kLanes;
static_assert(kPagePositions % kTileKeys == 0 && kSplitPositions % kPagePositions == 0);

SLIPSTREAM_INLINE int smaller(int a, int b) { return a < b ? a : b; }
SLIPSTREAM_INLINE int larger(int a, int b) { return a > b ? a : b; }

// Views into the caller's scratch; `width` is head_dim padded to whole blocks of 16.
struct AttentionWork {
  const AttentionTask* tasks;
  int rows, heads, head_dim, width;
  float* tile;     // [16][width], float keys or values of one tile
  float* queries;  // [rows * heads][width]
  float* weights;  // [rows * heads][256], scores, then exponentials
  float* partial;  // [rows * heads][width], weighted values of this split
  float* total;    // [rows * heads][width], merged over the splits so far
  float* state;    // [rows * heads][4], maximum and sum: of the splits so far, of this split
};

// Logical positions begin .. end - 1, or none.
struct Range {
  int begin, end;
  SLIPSTREAM_INLINE bool empty() const { return begin >= end; }
};

SLIPSTREAM_INLINE Range keys_within(const AttentionTask& task, int begin, int end) {
  return {larger(task.first, begin), smaller(task.identity + task.tail_count, end)};
}

inline AttentionWork carve(const AttentionTask* tasks, int rows) {
  AttentionWork work{tasks, rows, tasks->heads, tasks->head_dim, 0, 0, 0, 0, 0, 0, 0};
  work.width = (work.head_dim + kLanes - 1) / kLanes * kLanes;
  const size_t heads = size_t(rows) * size_t(work.heads), width = size_t(work.width);
  work.tile = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(tasks->scratch) + 63) & ~63ull);
  work.queries = work.tile + kTileKeys * width;
  work.weights = work.queries + heads * width;
  work.partial = work.weights + heads * kSplitPositions;
  work.total = work.partial + heads * width;
  work.state = work.total + heads * width;
  return work;
}

inline void start(const AttentionWork& work) {
  const size_t width = size_t(work.width), dim = size_t(work.head_dim);
  const size_t heads = size_t(work.rows * work.heads);
  memset(work.tile, 0, (kTileKeys + heads) * width * sizeof(float));
  memset(work.total, 0, heads * width * sizeof(float));
  for (int row = 0; row < work.rows; ++row)
    for (int head = 0; head < work.heads; ++head) {
      const size_t index = size_t(row * work.heads + head);
      memcpy(work.queries + index * width, work.tasks[row].query + size_t(head) * dim,
             dim * sizeof(float));
      work.state[4 * index] = -__builtin_inff();
      work.state[4 * index + 1] = 0.0f;
    }
}

SLIPSTREAM_INLINE const uint16_t* slot_address(const AttentionTask& task, const uint16_t* base,
                                               int slot) {
  const size_t page = size_t(task.pages[slot / kPagePositions]);
  return base + page * task.page_stride + size_t(slot % kPagePositions) * size_t(task.head_dim);
}

// Fills the tile with `keys` of the task; one key's place in it is its logical position mod 16.
inline void fill_tile(const AttentionWork& work, const AttentionTask& task, const uint16_t* base,
                      Range keys) {
  for (int key = keys.begin; key < keys.end; ++key) {
    const int slot = key < task.identity ? key : task.tail[key - task.identity];
    load_half_row(slot_address(task, base, slot), work.head_dim,
                  work.tile + size_t(key % kTileKeys) * size_t(work.width));
  }
}

// Runs body(row, keys) with the tile holding the row's keys within [begin, begin + 16): filled once
// for all rows whose keys there are identity slots, then afresh for each row with tail keys there.
template <class Body>
SLIPSTREAM_INLINE void with_tile(const AttentionWork& work, bool values, int begin, Body body) {
  const auto is_shared = [&](int row, Range keys) { return keys.end <= work.tasks[row].identity; };
  const auto keys_of = [&](int row) {
    return keys_within(work.tasks[row], begin, begin + kTileKeys);
  };
  const uint16_t* base = values ? work.tasks->values : work.tasks->keys;
  Range shared{begin + kTileKeys, begin};
  for (int row = 0; row < work.rows; ++row) {
    const Range keys = keys_of(row);
    if (keys.empty() || !is_shared(row, keys)) continue;
    shared = {smaller(shared.begin, keys.begin), larger(shared.end, keys.end)};
  }
  AttentionTask prefix = *work.tasks;
  prefix.identity = shared.end;
  fill_tile(work, prefix, base, shared);
  for (int row = 0; row < work.rows; ++row) {
    const Range keys = keys_of(row);
    if (!keys.empty() && is_shared(row, keys)) body(row, keys);
  }
  for (int row = 0; row < work.rows; ++row) {
    const Range keys = keys_of(row);
    if (keys.empty() || is_shared(row, keys)) continue;
    fill_tile(work, work.tasks[row], base, keys);
    body(row, keys);
  }
}

// Dots of `Heads` queries with `Keys` tile rows, folded once: folded[head][16][8].
template <int Heads, int Keys>
SLIPSTREAM_INLINE void dot_block(const float* queries, const float* keys, int width,
                                 float* folded) {
  F32x16 sum[Heads][Keys];
  for (auto& row : sum)
    for (F32x16& value : row) value = zero();
  for (int i = 0; i < width; i += kLanes) {
    F32x16 key[Keys];
    for (int k = 0; k < Keys; ++k) key[k] = load(keys + k * width + i);
    if (Heads > 1)
      for (F32x16& value : key) pin(value);
    for (int h = 0; h < Heads; ++h) {
      F32x16 query = load(queries + h * width + i);
      pin(query);
      for (int k = 0; k < Keys; ++k) sum[h][k] = fma(query, key[k], sum[h][k]);
    }
  }
  for (int h = 0; h < Heads; ++h)
    for (int k = 0; k < Keys; ++k) store_folded_once(folded + (h * kTileKeys + k) * 8, sum[h][k]);
}

template <int Heads, int Keys>
SLIPSTREAM_OUT_OF_LINE void score_heads(const AttentionWork& work, size_t head, Range keys,
                                        float* weights) {
  const float scale = work.tasks->scale;
  alignas(64) float folded[Heads * kTileKeys * 8];
  for (int k = 0; k < kTileKeys; k += Keys)
    dot_block<Heads, Keys>(work.queries + head * size_t(work.width), work.tile + k * work.width,
                           work.width, folded + k * 8);
  const int tile = keys.begin / kTileKeys * kTileKeys;
  const Mask16 present = lane_range(keys.begin - tile, keys.end - tile);
  for (int h = 0; h < Heads; ++h) {
    const F32x16 score = mul(fold_rows(folded + h * kTileKeys * 8), set(scale));
    store(weights + h * kSplitPositions, select(present, score, set(-__builtin_inff())));
  }
}

inline void score_row(const AttentionWork& work, int row, Range keys) {
  const int place = keys.begin / kTileKeys * kTileKeys % kSplitPositions;
  for (int head = 0; head < work.heads; head += 2) {
    const size_t index = size_t(row * work.heads + head);
    float* weights = work.weights + index * kSplitPositions + place;
    if (head + 1 < work.heads)
      score_heads<2, 2>(work, index, keys, weights);
    else
      score_heads<1, 4>(work, index, keys, weights);
  }
}

// partial[head] += weight(key) value(key) for the keys of one tile, in ascending order.
template <int Heads, int Blocks>
SLIPSTREAM_INLINE void weigh_block(const float* weights, const float* tile, Range places, int width,
                                   float* partial) {
  F32x16 sum[Heads][Blocks];
  for (int h = 0; h < Heads; ++h)
    for (int b = 0; b < Blocks; ++b) sum[h][b] = load(partial + h * width + b * kLanes);
  for (int k = places.begin; k < places.end; ++k) {
    F32x16 value[Blocks];
    for (int b = 0; b < Blocks; ++b) value[b] = load(tile + k * width + b * kLanes);
    if (Heads > 1)
      for (F32x16& block : value) pin(block);
    for (int h = 0; h < Heads; ++h) {
      const F32x16 weight = set(weights[h * kSplitPositions + k]);
      for (int b = 0; b < Blocks; ++b) sum[h][b] = fma(weight, value[b], sum[h][b]);
    }
  }
  for (int h = 0; h < Heads; ++h)
    for (int b = 0; b < Blocks; ++b) store(partial + h * width + b * kLanes, sum[h][b]);
}

template <int Heads, int Blocks>
SLIPSTREAM_OUT_OF_LINE void weigh_heads(const AttentionWork& work, size_t head, Range places,
                                        const float* weights) {
  float* partial = work.partial + head * size_t(work.width);
  int i = 0;
  for (; i + Blocks * kLanes <= work.width; i += Blocks * kLanes)
    weigh_block<Heads, Blocks>(weights, work.tile + i, places, work.width, partial + i);
  for (; i < work.width; i += kLanes)
    weigh_block<Heads, 1>(weights, work.tile + i, places, work.width, partial + i);
}

inline void weigh_row(const AttentionWork& work, int row, Range keys) {
  const int tile = keys.begin / kTileKeys * kTileKeys;
  const Range places{keys.begin - tile, keys.end - tile};
  for (int head = 0; head < work.heads; head += 2) {
    const size_t index = size_t(row * work.heads + head);
    const float* weights = work.weights + index * kSplitPositions + tile % kSplitPositions;
    if (head + 1 < work.heads)
      weigh_heads<2, 2>(work, index, places, weights);
    else
      weigh_heads<1, 4>(work, index, places, weights);
  }
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

inline void softmax_row(const AttentionWork& work, int row, Range keys) {
  const int split = keys.begin / kSplitPositions * kSplitPositions;
  const Range places{(keys.begin - split) / kTileKeys * kTileKeys, keys.end - split};
  for (int head = 0; head < work.heads; ++head) {
    const size_t index = size_t(row * work.heads + head);
    float* state = work.state + 4 * index;
    exponentials(work.weights + index * kSplitPositions, places, state + 2, state + 3);
  }
}

SLIPSTREAM_INLINE float first_lane(const F32x16& v) {
  alignas(64) float lane[kLanes];
  store(lane, v);
  return lane[0];
}

// total = total e^(m - M) + partial e^(p - M), M the larger of the two maxima; likewise the sum.
inline void merge_head(const AttentionWork& work, size_t index) {
  float* total = work.total + index * size_t(work.width);
  const float* partial = work.partial + index * size_t(work.width);
  float* state = work.state + 4 * index;
  const float peak = state[2] > state[0] ? state[2] : state[0];
  const F32x16 old = exp(set(state[0] - peak)), fresh = exp(set(state[2] - peak));
  for (int i = 0; i < work.width; i += kLanes)
    store(total + i, fma(load(total + i), old, mul(load(partial + i), fresh)));
  state[0] = peak;
  state[1] = first_lane(fma(set(state[1]), old, mul(set(state[3]), fresh)));
}

inline void merge_row(const AttentionWork& work, int row) {
  for (int head = 0; head < work.heads; ++head) merge_head(work, size_t(row * work.heads + head));
}

// Runs body(row, keys) for the rows with keys in begin .. end - 1; returns the union of their keys.
template <class Body>
SLIPSTREAM_INLINE Range each_row(const AttentionWork& work, int begin, int end, Body body) {
  Range all{end, begin};
  for (int row = 0; row < work.rows; ++row) {
    const Range keys = keys_within(work.tasks[row], begin, end);
    if (keys.empty()) continue;
    all = {smaller(all.begin, keys.begin), larger(all.end, keys.end)};
    body(row, keys);
  }
  return all;
}

inline void attend_split(const AttentionWork& work, int split) {
  const int end = split + kSplitPositions;
  const Range keys = each_row(work, split, end, [](int, Range) {});
  const int first_tile = keys.begin / kTileKeys * kTileKeys;
  for (int tile = first_tile; tile < keys.end; tile += kTileKeys)
    with_tile(work, false, tile, [&](int row, Range range) { score_row(work, row, range); });
  each_row(work, split, end, [&](int row, Range range) { softmax_row(work, row, range); });
  memset(work.partial, 0, size_t(work.rows * work.heads * work.width) * sizeof(float));
  for (int tile = first_tile; tile < keys.end; tile += kTileKeys)
    with_tile(work, true, tile, [&](int row, Range range) { weigh_row(work, row, range); });
  each_row(work, split, end, [&](int row, Range) { merge_row(work, row); });
}

inline void finish(const AttentionWork& work) {
  const size_t dim = size_t(work.head_dim);
  for (int row = 0; row < work.rows; ++row)
    for (int head = 0; head < work.heads; ++head) {
      const size_t index = size_t(row * work.heads + head);
      scale(work.total + index * size_t(work.width), 1.0f / work.state[4 * index + 1],
            work.head_dim, work.tasks[row].out + size_t(head) * dim);
    }
}

inline void attention_rows(const AttentionTask* tasks, int rows) {
  const AttentionWork work = carve(tasks, rows);
  start(work);
  const Range keys = each_row(work, 0, __INT_MAX__, [](int, Range) {});
  for (int split = keys.begin / kSplitPositions * kSplitPositions; split < keys.end;
       split += kSplitPositions)
    attend_split(work, split);
  finish(work);
}

inline void attention(const AttentionTask& task) { attention_rows(&task, 1); }

}  // namespace slipstream::SLIPSTREAM_LEVEL
