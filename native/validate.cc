// Checks of a step before anything is computed: no array of the caller is read out of bounds.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "executor.hh"

namespace slipstream {
namespace {

void require(bool condition, const char* reason, int row) {
  if (!condition) throw std::invalid_argument(reason + (" (row " + std::to_string(row) + ")"));
}

void require_page(const LayerGroup& group, const PageTable& table, int sequence, int page,
                  int row) {
  require(page < table.pages, "a slot lies beyond the page table", row);
  const int32_t number = table.sequence(sequence)[page];
  require(number >= 0 && number < group.pages, "a slot lies in a freed or unknown page", row);
}

}  // namespace

void Executor::validate(const Rows& step) const {
  if (program_.vocabulary > 0 && step.tokens == nullptr) {
    throw std::invalid_argument("this program needs token ids");
  }
  for (int row = 0; row < step.count; ++row) {
    if (program_.vocabulary > 0) {
      const int token = step.tokens[row];
      require(token >= 0 && token < program_.vocabulary, "a token id is out of range", row);
    }
    require(step.positions[row] >= 0, "a position is negative", row);
  }
  for (int index = 0; index < step.logits; ++index) {
    const int row = step.logit_rows[index];
    require(row >= 0 && row < step.count, "a logits row is out of range", row);
    require(index == 0 || step.logit_rows[index - 1] < row, "logits rows must ascend", row);
  }
  validate_keys(step);
  for (size_t group = 0; group < program_.groups.size(); ++group) {
    if (program_.group_windows[group] >= 0) validate_pages(step, group);
  }
}

void Executor::validate_keys(const Rows& step) const {
  for (int row = 0; row < step.count; ++row) {
    const int identity = step.identity[row];
    const int tail = step.tail_count[row];
    const int start = step.tail_start[row];
    require(identity >= 0 && tail >= 0 && start >= 0, "a key count is negative", row);
    require(start <= step.tail_size - tail, "a row's tail lies beyond the tail array", row);
    require(int64_t{identity} + tail == int64_t{step.positions[row]} + 1,
            "a row must read one key per position up to its own", row);
    require(step.slots[row] >= 0, "a slot is negative", row);
  }
  for (int index = 0; index < step.tail_size; ++index) {
    require(step.tail[index] >= 0, "a slot of a tail is negative", index);
  }
}

void Executor::validate_pages(const Rows& step, size_t group_index) const {
  const LayerGroup& group = program_.groups[group_index];
  const PageTable& table = step.tables[group_index];
  const int window = program_.group_windows[group_index];
  for (int row = 0; row < step.count; ++row) {
    const int sequence = step.table[row];
    require(sequence >= 0 && sequence < table.sequences, "a row has no page table", row);
    require_page(group, table, sequence, step.slots[row] / kPagePositions, row);
    const int first = first_key(step.positions[row], window) / kPagePositions;
    const int last = (step.identity[row] + kPagePositions - 1) / kPagePositions;
    for (int page = first; page < last; ++page) require_page(group, table, sequence, page, row);
    for (int index = 0; index < step.tail_count[row]; ++index) {
      const int slot = step.tail[step.tail_start[row] + index];
      require_page(group, table, sequence, slot / kPagePositions, row);
    }
  }
}

}  // namespace slipstream
