// Few-row quantised mat-mul: the table that each instruction-set level fills in.
//
// Weights are repacked at load into strips of 16 output rows (kernels.md section 2, design B); a
// strip holds exactly the bytes of its 16 GGUF rows. Output rows beyond the last are zero weights.
// The bits of an output element depend only on its weight row, its activation row and the type:
// exact integer sums inside a block, one fixed float step per block, blocks in order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace slipstream {

enum class WeightType : int {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  iq4_nl = 20,
  iq4_xs = 23,
  bf16 = 30,
  mxfp4 = 39,
};

constexpr int kStripRows = 16;

// Rows of activations are prepared once per input vector and shared by every matrix that reads it.
// The last two hold two int8 planes a row (kernels/planes.hh).
enum class ActivationKind : int {
  float32 = 0,
  int8_per_32 = 1,
  int8_per_256 = 2,
  planes_per_32 = 3,
  planes_per_256 = 4,
};

// Bits of the activations that quantised weights meet; float weights take float32 at either.
enum class Precision : int { a8 = 0, a16 = 1 };

struct WeightTraits {
  WeightType type;
  const char* name;
  int block_elements;
  int block_bytes;
  ActivationKind activation;  // at a8
};

constexpr WeightTraits kWeightTraits[] = {
    {WeightType::f32, "f32", 1, 4, ActivationKind::float32},
    {WeightType::f16, "f16", 1, 2, ActivationKind::float32},
    {WeightType::bf16, "bf16", 1, 2, ActivationKind::float32},
    {WeightType::q4_0, "q4_0", 32, 18, ActivationKind::int8_per_32},
    {WeightType::q4_1, "q4_1", 32, 20, ActivationKind::int8_per_32},
    {WeightType::q5_0, "q5_0", 32, 22, ActivationKind::int8_per_32},
    {WeightType::q5_1, "q5_1", 32, 24, ActivationKind::int8_per_32},
    {WeightType::q8_0, "q8_0", 32, 34, ActivationKind::int8_per_32},
    {WeightType::q4_k, "q4_k", 256, 144, ActivationKind::int8_per_256},
    {WeightType::q5_k, "q5_k", 256, 176, ActivationKind::int8_per_256},
    {WeightType::q6_k, "q6_k", 256, 210, ActivationKind::int8_per_256},
    {WeightType::q2_k, "q2_k", 256, 84, ActivationKind::int8_per_256},
    {WeightType::q3_k, "q3_k", 256, 110, ActivationKind::int8_per_256},
    {WeightType::iq4_nl, "iq4_nl", 32, 18, ActivationKind::int8_per_32},
    {WeightType::iq4_xs, "iq4_xs", 256, 136, ActivationKind::int8_per_256},
    {WeightType::mxfp4, "mxfp4", 32, 17, ActivationKind::int8_per_32},
};

// weight_traits for constant expressions; static, so that no level shares a symbol with another.
static constexpr const WeightTraits* find_traits(WeightType type) {
  for (const WeightTraits& traits : kWeightTraits) {
    if (traits.type == type) return &traits;
  }
  return nullptr;
}

// nullptr when no native kernel exists for the type.
const WeightTraits* weight_traits(WeightType type);

// What rows are prepared to for a type with a native kernel.
ActivationKind activation_kind(WeightType type, Precision precision);

// Bytes of one repacked strip of 16 rows (a multiple of 64).
size_t strip_bytes(WeightType type, int columns);

// Bytes of a prepared activation buffer (64-byte aligned by the caller).
size_t activation_bytes(ActivationKind kind, int rows, int columns);

struct MatmulKernels {
  const char* isa;

  // Prepare rows [first, last) of x [rows][stride] into `activations`, a buffer for all `rows`.
  void (*prepare)(ActivationKind kind, const float* x, size_t stride, int rows, int columns,
                  int first, int last, void* activations);

  // tile[r][16] = the 16 outputs of one strip for each of `rows` prepared rows (any rows >= 1).
  // `tile` is 64-byte aligned.
  void (*multiply)(WeightType type, const uint8_t* strip, int columns, const void* activations,
                   int rows, float* tile);

  // Repack source rows [16 * strip, 16 * strip + 16) of a [rows][columns] matrix.
  void (*repack)(WeightType type, const uint8_t* source, int rows, int columns, int strip,
                 uint8_t* packed_strip);

  // out[columns] = row `row` (0..15) of a packed strip, dequantised (same values as the NumPy
  // oracle).
  void (*dequantise_packed)(WeightType type, const uint8_t* strip, int columns, int row,
                            float* out);

  // out[columns] = one GGUF row, dequantised.
  void (*dequantise_source)(WeightType type, const uint8_t* source_row, int columns, float* out);

  // As `multiply` for activations of Precision::a16: two planes a row for quantised types.
  void (*multiply_planes)(WeightType type, const uint8_t* strip, int columns,
                          const void* activations, int rows, float* tile);
};

const MatmulKernels& matmul_kernels_portable();
#if defined(__x86_64__)
const MatmulKernels& matmul_kernels_avx2();
const MatmulKernels& matmul_kernels_avx_vnni();
const MatmulKernels& matmul_kernels_avx512();
#elif defined(__aarch64__)
const MatmulKernels& matmul_kernels_neon();
const MatmulKernels& matmul_kernels_neon_i8mm();
#endif

}  // namespace slipstream
