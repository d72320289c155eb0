// Attention of the query heads of one key/value head over logical keys. Included once per level.
//
// Per split of 256 logical positions: scores tile by tile (16 keys, each converted once for all
// rows and heads), maximum, exponentials and their sum in 16 lanes by logical position, then the
// weighted values key after key. Splits are computed anywhere and merged in ascending order.
#pragma once

#include "attention_scores.hh"
#include "attention_values.hh"

namespace slipstream::SLIPSTREAM_LEVEL {

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

template <class Row>
inline void attend_split(const AttentionWork& work, const Part& part, int split) {
  const int end = split + kSplitPositions;
  const Range keys = each_row(work, split, end, [](int, Range) {});
  const int first_tile = keys.begin / kTileKeys * kTileKeys;
  for (int tile = first_tile; tile < keys.end; tile += kTileKeys) score_tile<Row>(work, tile);
  each_row(work, split, end, [&](int row, Range range) { softmax_row(work, part, row, range); });
  memset(part.values, 0, work.count() * size_t(work.width) * sizeof(float));
  for (int tile = first_tile; tile < keys.end; tile += kTileKeys)
    weigh_tile<Row>(work, part, tile);
}

inline void attend(const AttentionWork& work, const Part& part, int split) {
  if (work.tasks->type == KvType::f16)
    attend_split<HalfRow>(work, part, split);
  else
    attend_split<Q8Row>(work, part, split);
}

inline void attention_rows(const AttentionTask* tasks, int rows) {
  const AttentionWork work = carve(tasks, rows);
  load_queries(work);
  start_total(work);
  const Range keys = each_row(work, 0, __INT_MAX__, [](int, Range) {});
  for (int split = keys.begin / kSplitPositions * kSplitPositions; split < keys.end;
       split += kSplitPositions) {
    attend(work, work.part, split);
    merge_split(work, work.part, split);
  }
  finish(work);
}

inline void attention(const AttentionTask& task) { attention_rows(&task, 1); }

inline void attention_part(const AttentionTask* tasks, int rows, int first, int last,
                           float* parts) {
  const AttentionWork work = carve(tasks, rows);
  load_queries(work);
  const size_t stride = attention_part_floats(rows, work.heads, work.head_dim);
  for (int split = first; split < last; ++split, parts += stride)
    attend(work, work.part_at(parts), split * kSplitPositions);
}

inline void attention_merge(const AttentionTask* tasks, int rows, int first, int last,
                            const float* parts) {
  const AttentionWork work = carve(tasks, rows);
  start_total(work);
  const size_t stride = attention_part_floats(rows, work.heads, work.head_dim);
  for (int split = first; split < last; ++split, parts += stride)
    merge_split(work, work.part_at(const_cast<float*>(parts)), split * kSplitPositions);
  finish(work);
}

}  // namespace slipstream::SLIPSTREAM_LEVEL
