// Attention of several rows at once and in runs of splits; the writing of q8_0 rows.
#include "vector_check_attention.hh"

namespace slipstream::check {
namespace {

// The rows of a step: their queries, paths and windows over one cache, some on a tree.
struct Step {
  Problem cached;
  Placement placement;
  std::vector<Floats> queries, outs;
  std::vector<std::vector<int32_t>> tails;
  Floats scratch;
  std::vector<AttentionTask> tasks;

  Step(int rows, int heads, int head_dim, int prefix, int window, bool tree, KvType type)
      : cached(heads, head_dim, prefix + 2 * rows, type), placement(as_chain(cached)),
        queries(size_t(rows)), outs(size_t(rows), Floats(cached.query.size())),
        tails(size_t(rows)),
        scratch(attention_rows_scratch_floats(rows, heads, head_dim) + 1, NAN) {
    scratch.back() = 7.0f;
    for (int row = 0; row < rows; ++row) {
      const bool branch = tree && row % 2;
      queries[size_t(row)] = normal(cached.query.size());
      std::vector<int32_t>& tail = tails[size_t(row)];
      for (int t = 0; branch && t <= row; ++t) tail.push_back(prefix + 2 * t + t % 2);
      AttentionTask task = task_of(cached, placement, 0);
      task.query = queries[size_t(row)].data();
      task.identity = branch ? prefix : prefix + row + 1;
      task.tail = tail.data();
      task.tail_count = int(tail.size());
      task.first = window ? std::max(0, task.identity + task.tail_count - window) : 0;
      task.scratch = scratch.data();
      task.out = outs[size_t(row)].data();
      tasks.push_back(task);
    }
  }
  int last_split() const {
    int last = 0;
    for (const AttentionTask& task : tasks)
      last = std::max(last, (task.identity + task.tail_count - 1) / kSplitPositions);
    return last;
  }
};

// All splits in runs of `length`, computed from the last to the first, then merged.
void attend_in_parts(const VectorKernels& kernels, Step& step, int length) {
  const int rows = int(step.tasks.size()), splits = step.last_split() + 1;
  const size_t floats =
      attention_part_floats(rows, step.cached.heads, step.cached.head_dim);
  Floats parts(floats * size_t(splits) + 1, NAN);
  parts.back() = 7.0f;
  for (int first = (splits - 1) / length * length; first >= 0; first -= length)
    kernels.attention_part(step.tasks.data(), rows, first, std::min(first + length, splits),
                           &parts[floats * size_t(first)]);
  kernels.attention_merge(step.tasks.data(), rows, 0, splits, parts.data());
  expect(parts.back() == 7.0f, "attention_part writes past its results");
}

// Rows together, in one go and in runs of splits, give the bits of each row alone.
void check_rows(const VectorKernels& kernels, Step step, const char* what) {
  for (const AttentionTask& task : step.tasks) kernels.attention(task);
  const std::vector<Floats> alone = step.outs;
  const auto compare = [&](const char* how) {
    for (size_t row = 0; row < step.tasks.size(); ++row) {
      expect(same(step.outs[row], alone[row]), "%s %s %s: row %zu of %zu, dim %d, heads %d, keys %d",
             kernels.isa, how, what, row, step.tasks.size(), step.cached.head_dim,
             step.cached.heads, step.cached.count);
      std::fill(step.outs[row].begin(), step.outs[row].end(), NAN);
    }
  };
  for (Floats& out : step.outs) std::fill(out.begin(), out.end(), NAN);
  for (size_t row = 0; row < step.tasks.size(); ++row) step.tasks[row].out = step.outs[row].data();
  kernels.attention_rows(step.tasks.data(), int(step.tasks.size()));
  compare("together");
  for (int length : {1, 2, 3}) {
    attend_in_parts(kernels, step, length);
    compare("in parts");
  }
  expect(step.scratch.back() == 7.0f, "attention writes past its scratch");
}

// Row counts, prefixes around the splits, windows, trees, heads 1 .. 8; few keys on the slow level.
void check_steps(const VectorKernels& kernels, int head_dim, KvType type) {
  constexpr int prefixes[] = {0, 50, 250, 600}, windows[] = {0, 60, 300};
  const bool slow = kernels.isa == levels()[0]->isa;
  for (int rows = 1; rows <= 17; ++rows) {
    if ((slow || head_dim != 64) && rows % 5 != head_dim / 16 % 5) continue;
    for (bool tree : {false, true}) {
      const int prefix = prefixes[(rows + tree) % (slow ? 2 : 4)], window = windows[rows % 3];
      check_rows(kernels, Step(rows, (rows + prefix) % 8 + 1, head_dim, prefix, window, tree, type),
                 name(type));
    }
  }
}

// Every level writes the same q8_0 rows, within half a step of the value; hostile blocks included.
void check_store_q8() {
  constexpr int n = 32 * 40;
  const float hostile[] = {NAN, INFINITY, -INFINITY, 0x1p-101f, 1e30f, 0.0f};
  Floats x = normal(n);
  for (int i = 0; i < 6; ++i)
    for (int k = 0; k < 32; ++k)
      x[size_t(32 * i + k)] = k == 5 * i ? hostile[i] : (i >= 3 ? 0.0f : x[size_t(32 * i + k)]);
  Halves expected(n / 32 * 17), found(expected.size());
  levels()[0]->store_kv(KvType::q8_0, x.data(), n, expected.data());
  for (const auto* level : levels()) {
    level->store_kv(KvType::q8_0, x.data(), n, found.data());
    expect(found == expected, "%s: q8_0 rows differ from portable's", level->isa);
  }
  Floats decoded(n);
  decode_q8(expected.data(), n, decoded.data());
  for (int block = 0; block < n / 32; ++block) {
    float largest = 0.0f;
    for (int k = 0; k < 32; ++k) largest = std::max(largest, std::fabs(x[size_t(32 * block + k)]));
    for (int k = 0; k < 32 && block >= 6; ++k) {
      const size_t i = size_t(32 * block + k);
      // half a step of largest / 127, and 127 steps of a scale rounded by 2^-11 of itself
      expect(std::fabs(decoded[i] - x[i]) <= largest * (0.5f / 127 + 0x1p-11f) * 1.001f,
             "q8_0 element %zu is %g, not %g", i, double(decoded[i]), double(x[i]));
    }
  }
  for (size_t i = 0; i < 3 * 32; ++i)
    expect(std::isnan(decoded[i]), "a block with an infinity or a NaN is not NaN");
  expect(decoded[3 * 32 + 15] == 0.0f && std::isinf(half_value(expected[4 * 17])) &&
             decoded[5 * 32] == 0.0f,
         "tiny, huge or zero q8_0 blocks");
}

}  // namespace

void check_attention_steps() {
  check_store_q8();
  for (const auto* level : levels())
    for (int head_dim : {32, 64, 80, 100, 128, 256})
      for (KvType type : kTypes)
        if (takes(type, head_dim)) check_steps(*level, head_dim, type);
}

}  // namespace slipstream::check
