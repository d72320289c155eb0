// Weights: matrices repacked into strips of 16 rows, and mapped source rows for token embeddings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "isa/levels.hh"
#include "pool.hh"

namespace slipstream {

constexpr size_t kHugePageBytes = size_t{2} << 20;

// One block of address space for all matrices of a model, on huge pages where the system has them:
// from one huge page on it begins and ends at borders of huge pages.
class Arena {
 public:
  // Raises std::bad_alloc.
  explicit Arena(size_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // 64-byte aligned. Raises std::bad_alloc when the arena is full.
  uint8_t* allocate(size_t bytes);
  size_t bytes() const { return bytes_; }
  const uint8_t* base() const { return base_; }

 private:
  void* area_ = nullptr;  // what the system gave; `base_` lies inside
  size_t area_bytes_ = 0;
  uint8_t* base_ = nullptr;
  size_t bytes_;
  size_t used_ = 0;
  std::mutex mutex_;
};

// A floating-point field of a block; a value with all bits of `exponent` set is NaN or infinite.
struct ScaleField {
  int offset;
  int width;  // bytes: 1, 2 or 4
  uint32_t exponent;
};

struct Matrix {
  WeightType type;
  int rows;
  int columns;
  int strips;
  size_t stride;  // bytes from one strip to the next
  const uint8_t* data;
  std::shared_ptr<Arena> arena;

  const uint8_t* strip(int index) const { return data + static_cast<size_t>(index) * stride; }
};

// Rows in the layout of the file; the owner keeps `data` mapped.
struct SourceRows {
  WeightType type;
  int rows;
  int columns;
  size_t row_bytes;
  const uint8_t* data;
  bool mapped = false;  // `data` is a read-only map of a file: its pages may be dropped after use
};

// Bytes of one row of the file. Raises std::invalid_argument for an unknown type or a width that is
// not whole blocks.
size_t source_row_bytes(WeightType type, int columns);

// Arena bytes of a matrix of this shape.
size_t matrix_bytes(WeightType type, int rows, int columns);

// Repacks `source` strip by strip on the pool; of a mapped source hardly more than the slices in
// work are ever resident. Returns nullptr when a scale of the source is not finite.
std::shared_ptr<Matrix> pack_matrix(Pool& pool, const Level& level, std::shared_ptr<Arena> arena,
                                    const SourceRows& source,
                                    const std::vector<ScaleField>& fields);

// Two matrices of one shape with their strips alternating, so that a thread that reads both reads
// one stream. Null pointers as above.
std::pair<std::shared_ptr<Matrix>, std::shared_ptr<Matrix>> pack_pair(
    Pool& pool, const Level& level, std::shared_ptr<Arena> arena, const SourceRows& first,
    const std::vector<ScaleField>& first_fields, const SourceRows& second,
    const std::vector<ScaleField>& second_fields);

// Whether every scale of `rows` is finite.
bool finite_scales(Pool& pool, const SourceRows& rows, const std::vector<ScaleField>& fields);

}  // namespace slipstream
