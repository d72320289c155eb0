// What the ops of a program see while one sub-batch of rows runs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "isa/levels.hh"

namespace slipstream {

// Activations are prepared in blocks of this many rows; each strip of weights meets block after
// block while it lies in the cache.
constexpr int kBlockRows = 64;

// Rows of a step run together at most; more are split (attention sees them in order).
constexpr int kBatchRows = 256;

// Rows that attend together at most: the keys they share are converted once for all of them.
constexpr int kSpanRows = 16;

enum class RowSet : int { all = 0, logits = 1 };

// A value, prepared activation or rotary table of the sub-batch.
struct Buffer {
  uint8_t* data = nullptr;
  size_t stride = 0;  // bytes per row (per block of rows for prepared activations)

  float* row(int index) const {
    return reinterpret_cast<float*>(data + static_cast<size_t>(index) * stride);
  }
};

// Keys and values of one layer group: halves [layers][pages][kv_heads][64][row_halves].
struct LayerGroup {
  uint16_t* keys = nullptr;
  uint16_t* values = nullptr;
  int layers = 0;
  int pages = 0;
  int kv_heads = 0;
  int head_dim = 0;
  KvType type = KvType::f16;

  int row_halves() const { return kv_row_halves(type, head_dim); }
  size_t head_halves() const { return static_cast<size_t>(kPagePositions) * row_halves(); }
  size_t page_halves() const { return head_halves() * kv_heads; }
  size_t layer_halves() const { return page_halves() * pages; }
};

// Page numbers int32 [sequences][pages] of one group.
struct PageTable {
  const int32_t* data = nullptr;
  int sequences = 0;
  int pages = 0;

  const int32_t* sequence(int index) const { return data + static_cast<size_t>(index) * pages; }
};

// The rows of a step; see slipstream.backends.base.Step and memory.base.KeyLayout.
struct Rows {
  int count = 0;
  const int32_t* tokens = nullptr;  // nullptr when the program starts from vectors
  const int32_t* positions = nullptr;
  const int32_t* slots = nullptr;
  const int32_t* table = nullptr;
  const int32_t* identity = nullptr;
  const int32_t* tail_start = nullptr;
  const int32_t* tail_count = nullptr;
  const int32_t* tail = nullptr;
  int tail_size = 0;
  const int32_t* logit_rows = nullptr;
  int logits = 0;
  std::vector<PageTable> tables;
  std::vector<const float*> vectors;  // per input of the program
  std::vector<float*> outputs;        // per output of the program, nullptr = not wanted
};

// Consecutive rows of one sequence, whose keys lie in the splits first_split .. + splits - 1; these
// are attended to in `runs` runs per key/value head.
struct Span {
  int first;
  int count;  // 1 .. kSpanRows
  int first_split;
  int splits;
  int runs;
  int first_run;  // among the runs of all spans of the group
  size_t parts;   // with more than one run: where the results of its splits begin in Frame::parts
};

struct Frame {
  const Level* level = nullptr;
  Rows rows;          // of the sub-batch: pointers moved to its first row
  int first_row = 0;  // of the sub-batch in the step
  std::vector<LayerGroup> groups;
  std::vector<std::vector<Span>> spans;  // per group: the rows that attend together
  std::vector<int> runs;                 // per group: of all spans
  float* parts = nullptr;                // results of splits that wait for their merge
  std::unique_ptr<std::atomic<int>[]> runs_done;  // [spans of a group * kv_heads], 0 in between
  std::vector<Buffer> buffers;
  std::vector<float*> outputs;     // moved to the sub-batch; nullptr = not wanted
  std::vector<uint8_t> needed;     // per node
  std::vector<uint8_t*> scratch;   // per thread

  int count(RowSet set) const { return set == RowSet::all ? rows.count : rows.logits; }
};

}  // namespace slipstream
