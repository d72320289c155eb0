// Problems of attention and where their keys lie, shared by its checks.
#pragma once

#include <algorithm>
#include <numeric>

#include "vector_check.hh"

namespace slipstream::check {

constexpr KvType kTypes[] = {KvType::f16, KvType::q8_0};

inline bool takes(KvType type, int head_dim) { return type == KvType::f16 || head_dim % 32 == 0; }

inline const char* name(KvType type) { return type == KvType::f16 ? "f16" : "q8_0"; }

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

inline float half_value(uint16_t half) {
  float value;
  levels()[0]->load_half(&half, 1, &value);
  return value;
}

// What a q8_0 row stands for, element by element.
inline void decode_q8(const uint16_t* row, int head_dim, float* out) {
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

inline Placement place(const Problem& problem, int identity, std::vector<int32_t> tail) {
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

inline Placement as_chain(const Problem& problem) { return place(problem, problem.count, {}); }

inline AttentionTask task_of(const Problem& problem, const Placement& placement, int first) {
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

// Rows together and runs of splits against rows alone; q8_0 rows.
void check_attention_steps();

}  // namespace slipstream::check
