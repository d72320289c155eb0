#include "row_ops.hh"

#include <algorithm>
#include <cstring>

namespace slipstream {
namespace {

void scale_in_place(const Frame& frame, float* row, float factor, int width) {
  if (factor != 1.0f) frame.level->vectors->scale(row, factor, width, row);
}

void copy_floats(const float* from, int count, float* to) {
  std::memcpy(to, from, sizeof(float) * static_cast<size_t>(count));
}

}  // namespace

void EmbedPacked::run(const Frame& frame, int row) const {
  const int token = frame.rows.tokens[row];
  float* out = frame.buffers[out_].row(row);
  frame.level->matmul->dequantise_packed(matrix_->type, matrix_->strip(token / kStripRows),
                                         matrix_->columns, token % kStripRows, out);
  scale_in_place(frame, out, scale_, matrix_->columns);
}

void EmbedSource::run(const Frame& frame, int row) const {
  const size_t token = static_cast<size_t>(frame.rows.tokens[row]);
  float* out = frame.buffers[out_].row(row);
  frame.level->matmul->dequantise_source(source_->type, source_->data + token * source_->row_bytes,
                                         source_->columns, out);
  scale_in_place(frame, out, scale_, source_->columns);
}

void CopyInput::run(const Frame& frame, int row) const {
  const size_t step_row = static_cast<size_t>(frame.first_row + row);
  copy_floats(frame.rows.vectors[input_] + step_row * width_, width_,
              frame.buffers[out_].row(row));
}

void RmsNorm::run(const Frame& frame, int row) const {
  frame.level->vectors->rms_norm(frame.buffers[x_].row(row),
                                 weight_.empty() ? nullptr : weight_.data(), epsilon_, groups_,
                                 width_, frame.buffers[out_].row(row));
}

void Prepare::run(const Frame& frame, int row) const {
  const Buffer& x = frame.buffers[x_];
  const Buffer& out = frame.buffers[out_];
  const int block = row / kBlockRows;
  const int first = block * kBlockRows;
  const int rows = std::min(kBlockRows, frame.count(set_) - first);
  frame.level->matmul->prepare(kind_, x.row(first), x.stride / sizeof(float), rows, columns_,
                               row - first, row - first + 1, out.row(block));
}

void FillRopeTable::run(const Frame& frame, int row) const {
  const int pairs = static_cast<int>(table_.frequencies.size());
  float* out = frame.buffers[out_].row(row);
  frame.level->vectors->rope_table(frame.rows.positions[row], table_.frequencies.data(), pairs,
                                   table_.magnitude, out, out + pairs);
}

void Rope::run(const Frame& frame, int row) const {
  const float* table = frame.buffers[table_].row(row);
  frame.level->vectors->rope(frame.buffers[x_].row(row), heads_, head_dim_, rotary_width_, neox_,
                             table, table + rotary_width_ / 2, frame.buffers[out_].row(row));
}

void StoreKeys::run(const Frame& frame, int row) const {
  const LayerGroup& group = frame.groups[group_];
  const int slot = frame.rows.slots[row];
  const int32_t* pages = frame.rows.tables[group_].sequence(frame.rows.table[row]);
  const size_t place = layer_ * group.layer_halves() +
                       pages[slot / kPagePositions] * group.page_halves() +
                       static_cast<size_t>(slot % kPagePositions) * group.row_halves();
  const float* key = frame.buffers[key_].row(row);
  const float* value = frame.buffers[value_].row(row);
  for (int head = 0; head < group.kv_heads; ++head) {
    const size_t to = place + head * group.head_halves();
    frame.level->vectors->store_kv(group.type, key + head * group.head_dim, group.head_dim,
                                   group.keys + to);
    frame.level->vectors->store_kv(group.type, value + head * group.head_dim, group.head_dim,
                                   group.values + to);
  }
}

void Add::run(const Frame& frame, int row) const {
  frame.level->vectors->add(frame.buffers[a_].row(row), frame.buffers[b_].row(row), width_,
                            frame.buffers[out_].row(row));
}

void Scale::run(const Frame& frame, int row) const {
  frame.level->vectors->scale(frame.buffers[x_].row(row), factor_, width_,
                              frame.buffers[out_].row(row));
}

void Softcap::run(const Frame& frame, int row) const {
  frame.level->vectors->softcap(frame.buffers[x_].row(row), cap_, width_,
                                frame.buffers[out_].row(row));
}

void Gated::run(const Frame& frame, int row) const {
  frame.level->vectors->gated(activation_, frame.buffers[gate_].row(row),
                              frame.buffers[up_].row(row), width_, frame.buffers[out_].row(row));
}

void Gather::run(const Frame& frame, int row) const {
  const int from = frame.rows.logit_rows[row] - frame.first_row;
  copy_floats(frame.buffers[x_].row(from), width_, frame.buffers[out_].row(row));
}

void Deliver::run(const Frame& frame, int row) const {
  float* out = frame.outputs[output_] + static_cast<size_t>(row) * width_;
  const float* x = frame.buffers[x_].row(row);
  if (x != out) copy_floats(x, width_, out);
}

}  // namespace slipstream
