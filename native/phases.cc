#include "phases.hh"

#include <algorithm>

namespace slipstream {
namespace {

constexpr size_t kClaimBytes = 16 * 1024;  // weights below this are not worth a claim of their own

int strips_of(const Frame& frame, const Product& product) {
  return frame.needed[product.node] ? product.weight->strips : 0;
}

const void* block_of(const Frame& frame, int buffer, int block) {
  return frame.buffers[buffer].row(block);
}

}  // namespace

int RowPhase::items(const Frame& frame) const {
  const auto needed = [&](const std::unique_ptr<RowOp>& op) { return frame.needed[op->node] != 0; };
  return std::any_of(ops.begin(), ops.end(), needed) ? frame.count(set) : 0;
}

void RowPhase::run(const Frame& frame, int first, int last, int) const {
  for (int row = first; row < last; ++row) {
    for (const std::unique_ptr<RowOp>& op : ops) {
      if (frame.needed[op->node]) op->run(frame, row);
    }
  }
}

int ProductPhase::items(const Frame& frame) const {
  if (frame.count(set_) == 0) return 0;
  int strips = 0;
  for (const Product& product : products_) strips += strips_of(frame, product);
  return strips;
}

int ProductPhase::grain(const Frame& frame) const {
  const size_t rows = static_cast<size_t>(frame.count(set_));
  const size_t bytes = products_.front().weight->stride * std::max<size_t>(rows / 4, 1);
  return static_cast<int>(std::clamp<size_t>(kClaimBytes / bytes, 1, 255));
}

void ProductPhase::run(const Frame& frame, int first, int last, int thread) const {
  float* tile = reinterpret_cast<float*>(frame.scratch[thread]);
  int start = 0;
  for (const Product& product : products_) {
    const int end = start + strips_of(frame, product);
    for (int item = std::max(first, start); item < std::min(last, end); ++item) {
      strip(frame, product, item - start, tile);
    }
    start = end;
  }
}

void ProductPhase::strip(const Frame& frame, const Product& product, int strip, float* tile) const {
  const MatmulKernels& matmul = *frame.level->matmul;
  const Matrix& weight = *product.weight;
  const int column = strip * kStripRows;
  const int width = std::min(kStripRows, weight.rows - column);
  const int count = frame.count(set_);
  const auto multiply =
      precision_ == Precision::a8 ? matmul.multiply : matmul.multiply_planes;
  for (int first = 0; first < count; first += kBlockRows) {
    const int rows = std::min(kBlockRows, count - first);
    const int block = first / kBlockRows;
    const float* result = tile;
    multiply(weight.type, weight.strip(strip), weight.columns,
             block_of(frame, product.activations, block), rows, tile);
    if (product.up != nullptr) {
      float* up = tile + kBlockRows * kStripRows;
      float* gated = up + kBlockRows * kStripRows;
      multiply(product.up->type, product.up->strip(strip), product.up->columns,
               block_of(frame, product.up_activations, block), rows, up);
      frame.level->vectors->gated(product.activation, tile, up, rows * kStripRows, gated);
      result = gated;
    }
    for (int row = 0; row < rows; ++row) {
      const float* from = result + row * kStripRows;
      float* to = frame.buffers[product.out].row(first + row) + column;
      const float* bias = product.bias.empty() ? nullptr : product.bias.data() + column;
      const float* residual = product.residual < 0
                                  ? nullptr
                                  : frame.buffers[product.residual].row(first + row) + column;
      for (int i = 0; i < width; ++i) {
        float sum = from[i];
        if (bias != nullptr) sum += bias[i];
        if (residual != nullptr) sum += residual[i];
        to[i] = sum;
      }
    }
  }
}

int AttentionPhase::items(const Frame& frame) const {
  return frame.needed[node_] ? frame.runs[shape_.group] * shape_.kv_heads : 0;
}

void AttentionPhase::run(const Frame& frame, int first, int last, int thread) const {
  const std::vector<Span>& spans = frame.spans[shape_.group];
  float* scratch = reinterpret_cast<float*>(frame.scratch[thread]);
  for (int item = first; item < last; ++item) {
    const auto after = std::upper_bound(
        spans.begin(), spans.end(), item / shape_.kv_heads,
        [](int run, const Span& span) { return run < span.first_run; });
    const int span = static_cast<int>(after - spans.begin()) - 1;
    const int within = item - spans[span].first_run * shape_.kv_heads;
    attend(frame, span, within / spans[span].runs, within % spans[span].runs, scratch);
  }
}

void AttentionPhase::attend(const Frame& frame, int index, int head, int run,
                            float* scratch) const {
  const VectorKernels& kernels = *frame.level->vectors;
  const Span& span = frame.spans[shape_.group][index];
  AttentionTask tasks[kSpanRows];
  for (int i = 0; i < span.count; ++i) tasks[i] = task(frame, span.first + i, head, scratch);
  if (span.runs == 1) {
    kernels.attention_rows(tasks, span.count);
    return;
  }
  const size_t floats =
      attention_part_floats(span.count, shape_.heads / shape_.kv_heads, shape_.head_dim);
  float* parts = frame.parts + span.parts + floats * span.splits * head;
  const int first = span.splits * run / span.runs, last = span.splits * (run + 1) / span.runs;
  kernels.attention_part(tasks, span.count, span.first_split + first, span.first_split + last,
                         parts + floats * first);
  std::atomic<int>& done = frame.runs_done[index * shape_.kv_heads + head];
  if (done.fetch_add(1, std::memory_order_acq_rel) + 1 < span.runs) return;
  done.store(0, std::memory_order_relaxed);
  kernels.attention_merge(tasks, span.count, span.first_split, span.first_split + span.splits,
                          parts);
}

AttentionTask AttentionPhase::task(const Frame& frame, int row, int head, float* scratch) const {
  const LayerGroup& group = frame.groups[shape_.group];
  const Rows& rows = frame.rows;
  const size_t start = static_cast<size_t>(shape_.layer) * group.layer_halves() +
                       static_cast<size_t>(head) * group.head_halves();
  AttentionTask task{};
  task.heads = shape_.heads / shape_.kv_heads;
  task.head_dim = shape_.head_dim;
  task.scale = shape_.scale;
  task.type = group.type;
  const size_t query = static_cast<size_t>(head) * task.heads * shape_.head_dim;
  task.query = frame.buffers[query_].row(row) + query;
  task.out = frame.buffers[out_].row(row) + query;
  task.keys = group.keys + start;
  task.values = group.values + start;
  task.page_stride = group.page_halves();
  task.pages = rows.tables[shape_.group].sequence(rows.table[row]);
  task.first = first_key(rows.positions[row], shape_.window);
  task.identity = rows.identity[row];
  task.tail = rows.tail + rows.tail_start[row];
  task.tail_count = rows.tail_count[row];
  task.scratch = scratch;
  return task;
}

}  // namespace slipstream
