// What the steps of attention share: the caller's scratch, ranges of keys, where their rows lie.
#pragma once

#include "kv_rows.hh"

namespace slipstream::SLIPSTREAM_LEVEL {

constexpr int kTileKeys = kLanes;
static_assert(kPagePositions % kTileKeys == 0 && kSplitPositions % kPagePositions == 0);

SLIPSTREAM_INLINE int smaller(int a, int b) { return a < b ? a : b; }
SLIPSTREAM_INLINE int larger(int a, int b) { return a > b ? a : b; }

// The results of one split; queries are the rows' heads, `width` floats each.
struct Part {
  float* values;  // [rows * heads][width], weighted
  float* state;   // [rows * heads][2], maximum and sum
};

// Views into the caller's scratch; `width` is head_dim padded to whole blocks of 16.
struct AttentionWork {
  const AttentionTask* tasks;
  int rows, heads, head_dim, width;
  float* tile;     // [16][width], float keys or values of one tile
  float* queries;  // [rows * heads][width]
  float* weights;  // [rows * heads][256], scores, then exponentials
  Part total;      // merged over the splits so far
  Part part;       // of one split

  SLIPSTREAM_INLINE size_t count() const { return size_t(rows) * size_t(heads); }
  SLIPSTREAM_INLINE Part part_at(float* start) const {
    return {start, start + count() * size_t(width)};
  }
};

// Logical positions begin .. end - 1, or none.
struct Range {
  int begin, end;
  SLIPSTREAM_INLINE bool empty() const { return begin >= end; }
  SLIPSTREAM_INLINE bool operator==(const Range& other) const {
    return begin == other.begin && end == other.end;
  }
};

SLIPSTREAM_INLINE Range keys_within(const AttentionTask& task, int begin, int end) {
  return {larger(task.first, begin), smaller(task.identity + task.tail_count, end)};
}

inline AttentionWork carve(const AttentionTask* tasks, int rows) {
  AttentionWork work{tasks, rows, tasks->heads, tasks->head_dim, 0, 0, 0, 0, {0, 0}, {0, 0}};
  work.width = (work.head_dim + kLanes - 1) / kLanes * kLanes;
  const size_t width = size_t(work.width), queries = work.count();
  work.tile = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(tasks->scratch) + 63) & ~63ull);
  work.queries = work.tile + kTileKeys * width;
  work.weights = work.queries + queries * width;
  work.part = work.part_at(work.weights + queries * kSplitPositions);
  work.total = work.part_at(work.part.state + 2 * queries);
  return work;
}

inline void load_queries(const AttentionWork& work) {
  const size_t width = size_t(work.width), dim = size_t(work.head_dim);
  memset(work.tile, 0, kTileKeys * width * sizeof(float));
  if (width != dim) memset(work.queries, 0, work.count() * width * sizeof(float));
  float* to = work.queries;
  for (int row = 0; row < work.rows; ++row)
    for (int head = 0; head < work.heads; ++head, to += width)
      memcpy(to, work.tasks[row].query + size_t(head) * dim, dim * sizeof(float));
}

// Consecutive rows `first` .. `last` - 1 whose keys within one tile lie in the same slots: logical
// key j < identity in slot j, others in the first row's tail. `keys` is the union over the rows.
struct TileRows {
  int first, last, identity;
  Range keys;
};

SLIPSTREAM_INLINE Range tile_keys(const AttentionWork& work, int row, int tile) {
  return keys_within(work.tasks[row], tile, tile + kTileKeys);
}

// Runs body(TileRows) for all rows with keys in the tile.
template <class Body>
SLIPSTREAM_INLINE void each_tile_rows(const AttentionWork& work, int tile, Body body) {
  const auto in_place = [&](int row, Range keys) { return keys.end <= work.tasks[row].identity; };
  for (int row = 0; row < work.rows;) {
    TileRows run{row, row + 1, work.tasks[row].identity, tile_keys(work, row, tile)};
    ++row;
    if (run.keys.empty()) continue;
    if (in_place(run.first, run.keys)) {
      for (; row < work.rows; run.last = ++row) {
        const Range keys = tile_keys(work, row, tile);
        if (keys.empty() || !in_place(row, keys)) break;
        run.keys = {smaller(run.keys.begin, keys.begin), larger(run.keys.end, keys.end)};
      }
      run.identity = run.keys.end;
    }
    body(run);
  }
}

// Runs body(first row, end row, keys) for the rows of a run, those with equal keys together.
template <class Body>
SLIPSTREAM_INLINE void each_equal_keys(const AttentionWork& work, const TileRows& run, int tile,
                                       Body body) {
  for (int row = run.first; row < run.last;) {
    const int first = row;
    const Range keys = tile_keys(work, first, tile);
    while (row < run.last && tile_keys(work, row, tile) == keys) ++row;
    body(first, row, keys);
  }
}

SLIPSTREAM_INLINE const uint16_t* slot_address(const AttentionTask& task, const uint16_t* base,
                                               int slot) {
  const size_t page = size_t(task.pages[slot / kPagePositions]);
  const size_t row = size_t(kv_row_halves(task.type, task.head_dim));
  return base + page * task.page_stride + size_t(slot % kPagePositions) * row;
}

// Processors prefetch only within 4 KiB; this reaches the next ones in time, within a cache.
constexpr int kBytesAhead = 12 * 1024;

// Prefetches the tile that lies so far ahead of the one at `tile`.
SLIPSTREAM_INLINE void prefetch_ahead(const AttentionTask& task, const uint16_t* base, int tile) {
  const int bytes = kTileKeys * kv_row_halves(task.type, task.head_dim) * int(sizeof(uint16_t));
  const int ahead = tile + larger(kBytesAhead / bytes, 1) * kTileKeys;
  if (ahead + kTileKeys > task.identity) return;
  const auto* start = reinterpret_cast<const char*>(slot_address(task, base, ahead));
  for (int i = 0; i < bytes; i += 64) __builtin_prefetch(start + i);
}

// The rows of one tile's keys or values; places without a key name some row of the cache.
template <class Row>
struct TileAddresses {
  const typename Row::Element* row[kTileKeys];
};

template <class Row>
SLIPSTREAM_INLINE TileAddresses<Row> addresses(const AttentionWork& work, const TileRows& run,
                                               const uint16_t* base) {
  const AttentionTask& task = work.tasks[run.first];
  const auto address = [&](int key) {
    return slot_address(task, base, key < run.identity ? key : task.tail[key - run.identity]);
  };
  TileAddresses<Row> found;
  const int tile = run.keys.begin / kTileKeys * kTileKeys;
  prefetch_ahead(task, base, tile);
  if (run.keys.end <= run.identity) {  // a tile lies within a page
    const uint16_t* start = slot_address(task, base, tile);
    const size_t row = size_t(kv_row_halves(task.type, task.head_dim));
    for (int place = 0; place < kTileKeys; ++place) found.row[place] = start + size_t(place) * row;
    return found;
  }
  const uint16_t* any = address(run.keys.begin);
  for (const uint16_t*& row : found.row) row = any;
  for (int key = run.keys.begin; key < run.keys.end; ++key)
    found.row[key % kTileKeys] = address(key);
  return found;
}

// The tile as floats.
template <class Row>
SLIPSTREAM_OUT_OF_LINE TileAddresses<FloatRow> convert(const AttentionWork& work, Range keys,
                                                       const TileAddresses<Row>& from) {
  TileAddresses<FloatRow> to;
  for (int place = 0; place < kTileKeys; ++place) {
    float* row = work.tile + size_t(place) * size_t(work.width);
    to.row[place] = row;
    const int key = keys.begin / kTileKeys * kTileKeys + place;
    if (key >= keys.begin && key < keys.end)
      load_row(from.row[place], work.head_dim, row, Row{});
  }
  return to;
}

// Few queries read keys and values in place; for more, or a ragged head, a tile is converted once.
constexpr int kQueriesInPlace = 4;

SLIPSTREAM_INLINE bool reads_in_place(const AttentionWork& work, const TileRows& run) {
  return (run.last - run.first) * work.heads <= kQueriesInPlace && work.width == work.head_dim;
}

}  // namespace slipstream::SLIPSTREAM_LEVEL
