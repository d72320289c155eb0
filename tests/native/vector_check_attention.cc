// Attention against a double oracle, and its bit laws: paths, windows, rows, levels.
#include <algorithm>
#include <numeric>

#include "vector_check.hh"

namespace slipstream::check {
namespace {

constexpr int kHeadDims[] = {32, 64, 80, 128, 256};
constexpr int kKeyCounts[] = {1, 63, 64, 65, 255, 256, 257, 511, 513, 1000};

// A paged cache holding logical key j in slot slots[j], pages in random order.
struct Cache {
  int head_dim;
  size_t page_stride;
  std::vector<int32_t> pages;
  Halves keys, values;

  Cache(int dim, int slot_count) : head_dim(dim), page_stride(size_t(kPagePositions * dim + 32)) {
    const size_t count = size_t(slot_count + kPagePositions - 1) / kPagePositions;
    pages.resize(count);
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), generator());
    keys.assign(count * page_stride, 0x7e00);  // NaN: reading a foreign slot shows
    values.assign(count * page_stride, 0x7e00);
  }
  size_t offset(int slot) const {
    return size_t(pages[size_t(slot / kPagePositions)]) * page_stride +
           size_t(slot % kPagePositions * head_dim);
  }
  void put(int slot, const uint16_t* key, const uint16_t* value) {
    std::copy_n(key, head_dim, keys.begin() + long(offset(slot)));
    std::copy_n(value, head_dim, values.begin() + long(offset(slot)));
  }
};

// Logical keys and values, and the queries of one row.
struct Problem {
  int heads, head_dim, count;
  float scale;
  Floats query, key_floats, value_floats;
  Halves keys, values;

  Problem(int head_count, int dim, int key_count)
      : heads(head_count), head_dim(dim), count(key_count), scale(1.0f / std::sqrt(float(dim))) {
    const size_t size = size_t(dim) * size_t(key_count);
    query = normal(size_t(head_count * dim), 2.0f);
    keys.resize(size), values.resize(size), key_floats.resize(size), value_floats.resize(size);
    fill(keys, key_floats), fill(values, value_floats);
  }
  static void fill(Halves& halves, Floats& floats) {
    const Floats x = normal(halves.size());
    levels()[0]->store_half(x.data(), int(x.size()), halves.data());
    levels()[0]->load_half(halves.data(), int(x.size()), floats.data());
  }
};

// Where a row's keys lie: a cache, the identity prefix and the tail's slots.
struct Placement {
  Cache cache;
  int identity;
  std::vector<int32_t> tail;
};

Placement place(const Problem& problem, int identity, std::vector<int32_t> tail) {
  int slots = problem.count;
  for (int slot : tail) slots = std::max(slots, slot + 1);
  Placement placement{Cache(problem.head_dim, slots), identity, std::move(tail)};
  for (int j = 0; j < problem.count; ++j) {
    const int slot = j < identity ? j : placement.tail[size_t(j - identity)];
    const size_t at = size_t(j) * size_t(problem.head_dim);
    placement.cache.put(slot, &problem.keys[at], &problem.values[at]);
  }
  return placement;
}

Placement as_chain(const Problem& problem) { return place(problem, problem.count, {}); }

AttentionTask task_of(const Problem& problem, const Placement& placement, int first) {
  AttentionTask task{};
  task.query = problem.query.data();
  task.heads = problem.heads;
  task.head_dim = problem.head_dim;
  task.scale = problem.scale;
  task.keys = placement.cache.keys.data();
  task.values = placement.cache.values.data();
  task.page_stride = placement.cache.page_stride;
  task.pages = placement.cache.pages.data();
  task.first = first;
  task.identity = placement.identity;
  task.tail = placement.tail.data();
  task.tail_count = int(placement.tail.size());
  return task;
}

Floats attend(const VectorKernels& kernels, const Problem& problem, const Placement& placement,
              int first) {
  Floats out(problem.query.size());
  Floats scratch(attention_scratch_floats(problem.heads, problem.head_dim) + 1, NAN);
  scratch.back() = 7.0f;
  AttentionTask task = task_of(problem, placement, first);
  task.scratch = scratch.data();
  task.out = out.data();
  kernels.attention(task);
  expect(scratch.back() == 7.0f, "attention writes past its scratch");
  return out;
}

// |error| <= max|v| (2 d + n 2^-24): d bounds the error of a score (head_dim / 16 + 6 roundings of
// sum |q k|), n counts the roundings of the weighted sum, of its merges and of exp.
void check_oracle(const VectorKernels& kernels, const Problem& problem, int first) {
  const Floats out = attend(kernels, problem, as_chain(problem), first);
  const size_t dim = size_t(problem.head_dim);
  for (int head = 0; head < problem.heads; ++head) {
    const float* query = &problem.query[size_t(head) * dim];
    std::vector<double> scores, exact(dim);
    double spread = 0.0, total = 0.0;
    for (int j = first; j < problem.count; ++j) {
      double dot = 0.0, size = 0.0;
      for (size_t i = 0; i < dim; ++i) {
        const double product = double(query[i]) * problem.key_floats[size_t(j) * dim + i];
        dot += product, size += std::fabs(product);
      }
      scores.push_back(dot * problem.scale);
      spread = std::max(spread, size * problem.scale);
    }
    const double peak = *std::max_element(scores.begin(), scores.end());
    for (size_t j = 0; j < scores.size(); ++j) {
      const double weight = std::exp(scores[j] - peak);
      total += weight;
      for (size_t i = 0; i < dim; ++i)
        exact[i] += weight * problem.value_floats[(size_t(first) + j) * dim + i];
    }
    const double score_error = (problem.head_dim / 16 + 6) * spread * 0x1p-24;
    const double roundings = 256 + 4 * (problem.count / 256 + 1) + 8;
    const double tolerance = 5.0 * (2 * score_error + roundings * 0x1p-24);
    for (size_t i = 0; i < dim; ++i) {
      const double error = std::fabs(out[size_t(head) * dim + i] - exact[i] / total);
      expect(error <= tolerance, "attention dim %d keys %d first %d: error %g > %g",
             problem.head_dim, problem.count, first, error, tolerance);
    }
  }
}

// A path whose last keys lie in scattered slots has the bits of the chain.
void check_paths(const VectorKernels& kernels, const Problem& problem, int first) {
  const Floats chain = attend(kernels, problem, as_chain(problem), first);
  for (int tail_count : {1, 5, 17, 70}) {
    if (tail_count > problem.count) continue;
    const int identity = problem.count - tail_count;
    std::vector<int32_t> slots(size_t(3 * tail_count));
    std::iota(slots.begin(), slots.end(), identity);
    std::shuffle(slots.begin(), slots.end(), generator());
    slots.resize(size_t(tail_count));
    expect(same(attend(kernels, problem, place(problem, identity, slots), first), chain),
           "%s: path of %d after %d keys is not the chain", kernels.isa, tail_count, identity);
  }
}

void check_levels(const Problem& problem, int first) {
  const Placement chain = as_chain(problem);
  const Floats expected = attend(*levels()[0], problem, chain, first);
  for (const auto* level : levels())
    expect(same(attend(*level, problem, chain, first), expected),
           "%s: attention dim %d heads %d keys %d first %d", level->isa, problem.head_dim,
           problem.heads, problem.count, first);
}

// Rows of a tree and of a prefill chunk together give the bits of each row alone.
void check_rows(const VectorKernels& kernels, int heads, int head_dim, int prefix, int window) {
  constexpr int rows = 7;
  const Problem cached(heads, head_dim, prefix + 2 * rows);
  const Placement placement = as_chain(cached);
  std::vector<Problem> queries(rows, Problem(heads, head_dim, 1));
  std::vector<std::vector<int32_t>> tails;
  std::vector<AttentionTask> tasks;
  std::vector<Floats> together(rows, Floats(cached.query.size())), alone = together;
  Floats scratch(attention_rows_scratch_floats(rows, heads, head_dim) + 1, NAN);
  scratch.back() = 7.0f;
  for (int row = 0; row < rows; ++row) {
    queries[size_t(row)].query = normal(cached.query.size());
    tails.emplace_back();
    const bool tree = row % 2;
    for (int t = 0; tree && t <= row; ++t) tails.back().push_back(prefix + 2 * t + t % 2);
    AttentionTask task = task_of(cached, placement, 0);
    task.query = queries[size_t(row)].query.data();
    task.identity = tree ? prefix : prefix + row + 1;
    tasks.push_back(task);
  }
  for (size_t row = 0; row < rows; ++row) {
    AttentionTask& task = tasks[row];
    task.tail = tails[row].data();
    task.tail_count = int(tails[row].size());
    task.first = window ? std::max(0, task.identity + task.tail_count - window) : 0;
    task.scratch = scratch.data();
    task.out = alone[row].data();
    kernels.attention(task);
    task.out = together[row].data();
  }
  kernels.attention_rows(tasks.data(), rows);
  expect(scratch.back() == 7.0f, "attention_rows writes past its scratch");
  for (size_t row = 0; row < rows; ++row)
    expect(same(together[row], alone[row]), "%s: row %zu of %d, dim %d, prefix %d, window %d",
           kernels.isa, row, rows, head_dim, prefix, window);
}

// NaN and infinite keys or values end, and end alike on every level.
void check_hostile(int head_dim) {
  Problem problem(3, head_dim, 300);
  for (size_t i = 0; i < problem.keys.size(); i += 97) problem.keys[i] = uint16_t(generator()());
  for (size_t i = 0; i < problem.values.size(); i += 89)
    problem.values[i] = uint16_t(0x7c00 + i % 3);
  check_levels(problem, 0);
  problem.query[0] = NAN, problem.query[1] = INFINITY;
  check_levels(problem, 17);
}

}  // namespace

void check_attention() {
  for (int head_dim : kHeadDims) {
    for (int count : kKeyCounts) {
      const Problem problem(count % 4 + 1, head_dim, count);
      for (int window : {0, 1, 100, 512}) {
        if (window >= count) continue;
        const int first = window ? count - window : 0;
        check_levels(problem, first);
        for (const auto* level : levels()) {
          check_oracle(*level, problem, first);
          check_paths(*level, problem, first);
        }
      }
    }
    for (const auto* level : levels())
      for (int prefix : {0, 50, 250, 300})
        for (int window : {0, 60})
          check_rows(*level, head_dim == 64 ? 3 : 2, head_dim, prefix, window);
    check_hostile(head_dim);
  }
  const Problem odd(5, 100, 200);  // a head width that is no multiple of 16
  check_levels(odd, 0);
  for (const auto* level : levels()) check_oracle(*level, odd, 0);
}

}  // namespace slipstream::check
