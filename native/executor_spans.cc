// Cutting the attention of a sub-batch into items: spans of rows, and runs of their splits.
#include <algorithm>
#include <new>

#include "executor.hh"

namespace slipstream {
namespace {

constexpr std::align_val_t kAlignment{64};

// Items of an attention phase per thread, so that threads end together.
constexpr int kItemsPerThread = 8;

// Bytes for the results of splits that wait for their merge: of one sub-batch, in one layer. Spans
// beyond them are one run each; one row can always be cut.
constexpr size_t kPartsBudget = size_t{8} << 20;

// The splits of 256 logical positions in which rows have keys: first .. last.
struct Splits {
  int first, last;
  int count() const { return last - first + 1; }
};

Splits splits_of(const Rows& rows, int first, int last, int window) {
  Splits splits{first_key(rows.positions[first], window), 0};
  for (int row = first; row < last; ++row) {
    splits.first = std::min(splits.first, first_key(rows.positions[row], window));
    splits.last = std::max(splits.last, rows.positions[row]);
  }
  return {splits.first / kSplitPositions, splits.last / kSplitPositions};
}

}  // namespace

// Rows of one sequence in near-equal spans, then the splits of each span in runs.
void Executor::cut_spans() {
  const Rows& rows = frame_.rows;
  for (size_t group = 0; group < frame_.spans.size(); ++group) {
    frame_.spans[group].clear();
    frame_.runs[group] = 0;
    if (program_.group_windows[group] < 0) continue;
    int64_t work = 0;
    for (int row = 0; row < rows.count; ++row) {
      work += splits_of(rows, row, row + 1, program_.group_windows[group]).count();
    }
    work *= frame_.groups[group].kv_heads;
    const int64_t fair = work / (kItemsPerThread * pool_->threads());
    const int most = static_cast<int>(std::clamp<int64_t>(fair, 1, kSpanRows));
    for (int start = 0, end = 0; start < rows.count; start = end) {
      while (end < rows.count && rows.table[end] == rows.table[start]) ++end;
      cut_rows(group, start, end, most);
    }
    cut_runs(group);
  }
}

void Executor::cut_rows(size_t group, int start, int end, int most) {
  const int length = end - start;
  const int pieces = (length + most - 1) / most;
  for (int piece = 0; piece < pieces; ++piece) {
    const int first = start + length * piece / pieces;
    const int last = start + length * (piece + 1) / pieces;
    const Splits splits = splits_of(frame_.rows, first, last, program_.group_windows[group]);
    frame_.spans[group].push_back(
        {first, last - first, splits.first, splits.count(), 1, 0, 0});
  }
}

// No run is much more than the share of an item, where a span's splits and the room for their
// results allow it.
void Executor::cut_runs(size_t group) {
  int64_t work = 0;
  for (const Span& span : frame_.spans[group]) work += int64_t{span.splits} * span.count;
  work *= frame_.groups[group].kv_heads;
  const int64_t share = std::max<int64_t>(work / (kItemsPerThread * pool_->threads()), 1);
  int& runs = frame_.runs[group];
  size_t used = 0;
  for (Span& span : frame_.spans[group]) {
    const int64_t wanted = (int64_t{span.splits} * span.count + share - 1) / share;
    const size_t floats = program_.part_floats(group, span.count) * span.splits;
    const int most = floats <= parts_floats_ - used ? span.splits : 1;
    span.runs = static_cast<int>(std::clamp<int64_t>(wanted, 1, most));
    span.first_run = runs;
    span.parts = used;
    if (span.runs > 1) used += floats;
    runs += span.runs;
  }
}

// Floats that hold the results of `rows` rows at any depth: the pages of a group bound the keys of
// a row.
size_t Executor::most_part_floats(int rows) const {
  size_t most = 0;
  for (size_t group = 0; group < program_.groups.size(); ++group) {
    const int window = program_.group_windows[group];
    if (window < 0) continue;
    int64_t keys = int64_t{program_.groups[group].pages} * kPagePositions;
    if (window > 0) keys = std::min<int64_t>(keys, window + kSpanRows - 1);
    // Keys of a window may start anywhere in a split.
    const size_t splits = static_cast<size_t>((keys + kSplitPositions - 2) / kSplitPositions + 1);
    const size_t row = program_.part_floats(group, 1) * splits;
    const size_t budget = std::max(kPartsBudget / sizeof(float), row);
    most = std::max(most, std::min(row * static_cast<size_t>(rows), budget));
  }
  return most;
}

void Executor::reserve_parts(int rows) {
  const size_t floats = most_part_floats(rows);
  if (floats <= parts_floats_) return;
  auto* made = static_cast<float*>(::operator new(sizeof(float) * floats, kAlignment));
  if (frame_.parts != nullptr) ::operator delete(frame_.parts, kAlignment);
  frame_.parts = made;
  parts_floats_ = floats;
}

}  // namespace slipstream
