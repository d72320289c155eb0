#include "weights.hh"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>

#if !defined(_WIN32)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace slipstream {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kPageBytes = 4096;
constexpr size_t kSliceBytes = size_t{1} << 20;  // of a source, between two droppings of its pages

size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

bool is_finite(const uint8_t* block, const ScaleField& field) {
  // Three fixed widths: a copy of a variable one is a call.
  const uint8_t* bytes = block + field.offset;
  uint16_t half = 0;
  uint32_t word = 0;
  if (field.width == 2) {
    std::memcpy(&half, bytes, sizeof(half));
    word = half;
  } else if (field.width == 4) {
    std::memcpy(&word, bytes, sizeof(word));
  } else {
    word = *bytes;
  }
  return (word & field.exponent) != field.exponent;
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

// Takes the whole pages of some rows out of this process; the file still has them.
void drop_pages(const SourceRows& source, int first, int last) {
#if defined(_WIN32)
  (void)source, (void)first, (void)last;
#else
  static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (!source.mapped) return;
  const uintptr_t data = reinterpret_cast<uintptr_t>(source.data);
  const uintptr_t begin = round_up(data + static_cast<size_t>(first) * source.row_bytes, page);
  const uintptr_t end = (data + static_cast<size_t>(last) * source.row_bytes) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
#endif
}

// Calls function(first, last) for slices of the rows, on the pool; all but the last slice have a
// multiple of kStripRows rows.
template <typename Function>
void for_slices(Pool& pool, const SourceRows& source, Function function) {
  const size_t strip = source.row_bytes * kStripRows;
  const int rows = kStripRows * static_cast<int>(std::max<size_t>(kSliceBytes / strip, 1));
  const int slices = (source.rows - 1) / rows + 1;
  parallel_for(pool, slices, [&](int first, int last, int) {
    for (int slice = first; slice < last; ++slice) {
      const int begin = slice * rows;
      const int end = begin + std::min(rows, source.rows - begin);
      function(begin, end);
      drop_pages(source, begin, end);
    }
  });
}

// Fills the strips of `matrix` from `source`; false when a scale is not finite.
bool pack_strips(Pool& pool, const Level& level, const SourceRows& source, const Matrix& matrix,
                 uint8_t* packed, const std::vector<ScaleField>& fields) {
  std::atomic<bool> finite{true};
  for_slices(pool, source, [&](int first, int last) {
    for (int row = first; row < last; row += kStripRows) {
      if (!finite_rows(source, row, std::min(row + kStripRows, last), fields)) finite.store(false);
      const int strip = row / kStripRows;
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

Arena::Arena(size_t bytes)
    : bytes_(round_up(std::max<size_t>(bytes, 1),
                      bytes < kHugePageBytes ? kPageBytes : kHugePageBytes)) {
#if defined(_WIN32)
  area_ = _aligned_malloc(bytes_, kPageBytes);
  if (area_ == nullptr) throw std::bad_alloc();
  base_ = static_cast<uint8_t*>(area_);
#else
  const bool huge = bytes_ >= kHugePageBytes;
  area_bytes_ = bytes_ + (huge ? kHugePageBytes : 0);
  area_ = mmap(nullptr, area_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area_ == MAP_FAILED) throw std::bad_alloc();
  const uintptr_t start = reinterpret_cast<uintptr_t>(area_);
  base_ = reinterpret_cast<uint8_t*>(huge ? round_up(start, kHugePageBytes) : start);
#if defined(MADV_HUGEPAGE)
  // Advice only: +25 % in a pure read test (kernels.md section 7).
  if (huge) madvise(base_, bytes_, MADV_HUGEPAGE);
#endif
#endif
}

Arena::~Arena() {
#if defined(_WIN32)
  _aligned_free(area_);
#else
  munmap(area_, area_bytes_);
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
                                    const SourceRows& source,
                                    const std::vector<ScaleField>& fields) {
  check_fields(source.type, fields);
  const size_t stride = round_up(strip_bytes(source.type, source.columns), kAlignment);
  uint8_t* packed = arena->allocate(matrix_bytes(source.type, source.rows, source.columns));
  auto matrix = shape_matrix(source, stride, std::move(arena), packed);
  return pack_strips(pool, level, source, *matrix, packed, fields) ? matrix : nullptr;
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
  for_slices(pool, rows, [&](int first, int last) {
    if (!finite_rows(rows, first, last, fields)) finite.store(false);
  });
  return finite.load();
}

}  // namespace slipstream
