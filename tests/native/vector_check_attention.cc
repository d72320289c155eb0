// Attention against a double oracle, and its bit laws: paths, windows, rows, levels.
#include <algorithm>
#include <numeric>

#include "vector_check.hh"

namespace slipstream::check {
namespace {

constexpr int kHeadDims[] = {32, 64, 80, 128, 256};
constexpr int kKeyCounts[] = {1, 63, 64, 65, 255, 256, 257, 511, 513, 1000};

constexpr KvType kTypes[] = {KvType::f16, KvType::q8_0};

bool takes(KvType type, int head_dim) { return type == KvType::f16 || head_dim % 32 == 0; }

const char* name(KvType type) { return type == KvType::f16 ? "f16" : "q8_0"; }

// A paged cache holding logical key j in slot slots[j], pages in random order.
struct Cache {
  int row;
  size_t page_stride;
  std::vector<int32_t> pages;
  Halves keys, values;

  Cache(int row_halves, int slot_count)
      : row(row_halves), page_stride(size_t(kPagePositions * row_halves + 32)) {
    const size_t count = size_t(slot_count + kPagePositions - 1) / kPagePositions;
    pages.resize(count);
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), generator());
    keys.assign(count * page_stride, 0x7e00);  // NaN: reading a foreign slot shows
    values.assign(count * page_stride, 0x7e00);
  }
  size_t offset(int slot) const {
    return size_t(pages[size_t(slot / kPagePositions)]) * page_stride +
           size_t(slot % kPagePositions * row);
  }
  void put(int slot, const uint16_t* key, const uint16_t* value) {
    std::copy_n(key, row, keys.begin() + long(offset(slot)));
    std::copy_n(value, row, values.begin() + long(offset(slot)));
  }
};

float half_value(uint16_t half) {
  float value;
  levels()[0]->load_half(&half, 1, &value);
  return value;
}

// What a q8_0 row stands for, element by element.
void decode_q8(const uint16_t* row, int head_dim, float* out) {
  for (int i = 0; i < head_dim; ++i) {
    const uint16_t* block = row + i / 32 * 17;
    int8_t code;
    std::memcpy(&code, reinterpret_cast<const char*>(block + 1) + i % 32, 1);
    out[i] = half_value(*block) * float(code);
  }
}

// Logical keys and values, and the queries of one row.
struct Problem {
  int heads, head_dim, count, row;
  float scale;
  KvType type;
  Floats query, key_floats, value_floats;
  Halves keys, values;

  Problem(int head_count, int dim, int key_count, KvType kv_type = KvType::f16)
      : heads(head_count), head_dim(dim), count(key_count), row(kv_row_halves(kv_type, dim)),
        scale(1.0f / std::sqrt(float(dim))), type(kv_type) {
    const size_t size = size_t(dim) * size_t(key_count), halves = size_t(row) * size_t(key_count);
    query = normal(size_t(head_count * dim), 2.0f);
    keys.resize(halves), values.resize(halves), key_floats.resize(size), value_floats.resize(size);
    fill(keys, key_floats), fill(values, value_floats);
  }
  void fill(Halves& halves, Floats& floats) const {
    const Floats x = normal(floats.size());
    for (int key = 0; key < count; ++key) {
      uint16_t* stored = &halves[size_t(key) * size_t(row)];
      float* value = &floats[size_t(key) * size_t(head_dim)];
      levels()[0]->store_kv(type, &x[size_t(key) * size_t(head_dim)], head_dim, stored);
      if (type == KvType::f16)
        levels()[0]->load_half(stored, head_dim, value);
      else
        decode_q8(stored, head_dim, value);
    }
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
  Placement placement{Cache(problem.row, slots), identity, std::move(tail)};
  for (int j = 0; j < problem.count; ++j) {
    const int slot = j < identity ? j : placement.tail[size_t(j - identity)];
    const size_t at = size_t(j) * size_t(problem.row);
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
  task.type = problem.type;
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

void check_steps(const VectorKernels& kernels, int head_dim) {
  for (KvType type : kTypes) {
    if (!takes(type, head_dim)) continue;
    for (int rows = 1; rows <= 17; ++rows)
      for (bool tree : {false, true})
        for (int prefix : {rows % 2 ? 0 : 50, 250, 600})
          for (int window : {0, 60, 300})
            check_rows(kernels,
                       Step(rows, (rows + prefix) % 8 + 1, head_dim, prefix, window, tree, type),
                       name(type));
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

void check_problem(const Problem& problem, int first) {
  check_levels(problem, first);
  for (const auto* level : levels()) {
    check_oracle(*level, problem, first);
    check_paths(*level, problem, first);
  }
}

}  // namespace

void check_attention() {
  check_store_q8();
  for (int head_dim : kHeadDims) {
    for (int count : kKeyCounts)
      for (KvType type : kTypes) {
        if (!takes(type, head_dim)) continue;
        const Problem problem(count % 8 + 1, head_dim, count, type);
        for (int window : {0, 1, 100, 512})
          if (window < count) check_problem(problem, window ? count - window : 0);
      }
    for (const auto* level : levels()) check_steps(*level, head_dim);
    check_hostile(head_dim);
  }
  const Problem odd(5, 100, 200);  // a head width that is no multiple of 16
  check_levels(odd, 0);
  for (const auto* level : levels()) check_oracle(*level, odd, 0);
  for (const auto* level : levels()) check_steps(*level, 100);
}

}  // namespace slipstream::check
