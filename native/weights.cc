#include "weights.hh"

#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>

#if !defined(_WIN32)
#include <sys/mman.h>
#endif

namespace slipstream {
namespace {

constexpr size_t kAlignment = 64;

size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

bool is_finite(const uint8_t* block, const ScaleField& field) {
  uint32_t bits = 0;
  std::memcpy(&bits, block + field.offset, static_cast<size_t>(field.width));
  return (bits & field.exponent) != field.exponent;
}

bool finite_rows(const SourceRows& source, int first, int last,
                 const std::vector<ScaleField>& fields) {
  const size_t block = static_cast<size_t>(weight_traits(source.type)->block_bytes);
  const uint8_t* data = source.data + static_cast<size_t>(first) * source.row_bytes;
  const uint8_t* end = source.data + static_cast<size_t>(last) * source.row_bytes;
  bool finite = true;
  for (; data < end; data += block) {
    for (const ScaleField& field : fields) finite &= is_finite(data, field);
  }
  return finite;
}

void check_fields(WeightType type, const std::vector<ScaleField>& fields) {
  const int block = weight_traits(type)->block_bytes;
  for (const ScaleField& field : fields) {
    const bool known_width = field.width == 1 || field.width == 2 || field.width == 4;
    if (!known_width || field.offset < 0 || field.offset > block - field.width) {
      throw std::invalid_argument("a scale field lies outside its block");
    }
  }
}

// Fills the strips of `matrix` from `source`; false when a scale is not finite.
bool pack_strips(Pool& pool, const Level& level, const SourceRows& source, const Matrix& matrix,
                 uint8_t* packed, const std::vector<ScaleField>& fields) {
  std::atomic<bool> finite{true};
  parallel_for(pool, matrix.strips, [&](int first, int last, int) {
    for (int strip = first; strip < last; ++strip) {
      const int begin = strip * kStripRows;
      const int end = std::min(begin + kStripRows, source.rows);
      if (!finite_rows(source, begin, end, fields)) finite.store(false);
      level.matmul->repack(source.type, source.data, source.rows, source.columns, strip,
                           packed + static_cast<size_t>(strip) * matrix.stride);
    }
  });
  return finite.load();
}

std::shared_ptr<Matrix> shape_matrix(const SourceRows& source, size_t stride,
                                     std::shared_ptr<Arena> arena, const uint8_t* data) {
  const int strips = (source.rows + kStripRows - 1) / kStripRows;
  return std::make_shared<Matrix>(Matrix{source.type, source.rows, source.columns, strips, stride,
                                         data, std::move(arena)});
}

}  // namespace

Arena::Arena(size_t bytes) : base_(nullptr), bytes_(round_up(std::max<size_t>(bytes, 1), 4096)) {
#if defined(_WIN32)
  base_ = static_cast<uint8_t*>(_aligned_malloc(bytes_, 4096));
  if (base_ == nullptr) throw std::bad_alloc();
#else
  void* area =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<uint8_t*>(area);
#if defined(MADV_HUGEPAGE)
  // Advice only: +25 % in a pure read test (kernels.md section 7).
  madvise(area, bytes_, MADV_HUGEPAGE);
#endif
#endif
}

Arena::~Arena() {
#if defined(_WIN32)
  _aligned_free(base_);
#else
  munmap(base_, bytes_);
#endif
}

uint8_t* Arena::allocate(size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t size = round_up(bytes, kAlignment);
  if (size > bytes_ - used_) throw std::bad_alloc();
  uint8_t* place = base_ + used_;
  used_ += size;
  return place;
}

size_t source_row_bytes(WeightType type, int columns) {
  const WeightTraits* traits = weight_traits(type);
  if (traits == nullptr) {
    throw std::invalid_argument("no native kernels for tensor type " +
                                std::to_string(static_cast<int>(type)));
  }
  if (columns <= 0 || columns % traits->block_elements != 0) {
    throw std::invalid_argument(std::to_string(columns) + " columns are not whole blocks of " +
                                std::to_string(traits->block_elements));
  }
  return static_cast<size_t>(columns / traits->block_elements) *
         static_cast<size_t>(traits->block_bytes);
}

size_t matrix_bytes(WeightType type, int rows, int columns) {
  source_row_bytes(type, columns);
  if (rows <= 0) throw std::invalid_argument("a matrix needs at least one row");
  const size_t strips = (static_cast<size_t>(rows) + kStripRows - 1) / kStripRows;
  return strips * round_up(strip_bytes(type, columns), kAlignment);
}

std::shared_ptr<Matrix> pack_matrix(Pool& pool, const Level& level, std::shared_ptr<Arena> arena,
                                    WeightType type, const uint8_t* source, int rows, int columns,
                                    const std::vector<ScaleField>& fields) {
  check_fields(type, fields);
  const SourceRows described{type, rows, columns, source_row_bytes(type, columns), source};
  const size_t stride = round_up(strip_bytes(type, columns), kAlignment);
  uint8_t* packed = arena->allocate(matrix_bytes(type, rows, columns));
  auto matrix = shape_matrix(described, stride, std::move(arena), packed);
  return pack_strips(pool, level, described, *matrix, packed, fields) ? matrix : nullptr;
}

std::pair<std::shared_ptr<Matrix>, std::shared_ptr<Matrix>> pack_pair(
    Pool& pool, const Level& level, std::shared_ptr<Arena> arena, const SourceRows& first,
    const std::vector<ScaleField>& first_fields, const SourceRows& second,
    const std::vector<ScaleField>& second_fields) {
  if (first.rows != second.rows || first.columns != second.columns) {
    throw std::invalid_argument("a pair of matrices must have one shape");
  }
  check_fields(first.type, first_fields);
  check_fields(second.type, second_fields);
  const size_t own = round_up(strip_bytes(first.type, first.columns), kAlignment);
  const size_t stride = own + round_up(strip_bytes(second.type, second.columns), kAlignment);
  const size_t strips = (static_cast<size_t>(first.rows) + kStripRows - 1) / kStripRows;
  uint8_t* packed = arena->allocate(strips * stride);
  auto left = shape_matrix(first, stride, arena, packed);
  auto right = shape_matrix(second, stride, arena, packed + own);
  if (!pack_strips(pool, level, first, *left, packed, first_fields)) left = nullptr;
  if (!pack_strips(pool, level, second, *right, packed + own, second_fields)) right = nullptr;
  return {left, right};
}

bool finite_scales(Pool& pool, const SourceRows& rows, const std::vector<ScaleField>& fields) {
  check_fields(rows.type, fields);
  std::atomic<bool> finite{true};
  parallel_for(pool, rows.rows, [&](int first, int last, int) {
    if (!finite_rows(rows, first, last, fields)) finite.store(false);
  });
  return finite.load();
}

}  // namespace slipstream
