// Everything that one instruction-set level compiles, inside its own namespace.
//
// A level's source file includes bits.hh, its isa/dot_*.hh and this file inside its own namespace:
// no function compiled with wider instructions may share a symbol with another level, or the linker
// would keep either of them for both.
#pragma once

#include "kernels/codecs.hh"
#include "kernels/activations.hh"
#include "kernels/prepare.hh"
#include "kernels/lane_codes.hh"
#include "kernels/group_sums.hh"
#include "kernels/rows.hh"
#include "kernels/planes.hh"
#include "kernels/float_weights.hh"
#include "kernels/f32.hh"
#include "kernels/f16.hh"
#include "kernels/bf16.hh"
#include "kernels/block32.hh"
#include "kernels/q4_0.hh"
#include "kernels/q4_1.hh"
#include "kernels/q5_0.hh"
#include "kernels/q5_1.hh"
#include "kernels/q8_0.hh"
#include "kernels/k_quants.hh"
#include "kernels/q4_k.hh"
#include "kernels/q5_k.hh"
#include "kernels/q6_k.hh"
#include "kernels/low_bit_codes.hh"
#include "kernels/q2_k.hh"
#include "kernels/q3_k.hh"
#include "kernels/table_codes.hh"
#include "kernels/iq4_nl.hh"
#include "kernels/iq4_xs.hh"
#include "kernels/mxfp4.hh"

// A type's trait, which agrees with weight_traits on the blocks.
template <WeightType kType, class Type>
constexpr Type trait() {
  static_assert(Type::kBlockElements == find_traits(kType)->block_elements);
  static_assert(Type::kBlockBytes == find_traits(kType)->block_bytes);
  return {};
}

// Calls visit(T{}) with the type's trait; callers ask weight_traits first.
template <class Visit>
INLINE void visit_type(WeightType type, Visit visit) {
  switch (type) {
    case WeightType::f32: return visit(trait<WeightType::f32, F32>());
    case WeightType::f16: return visit(trait<WeightType::f16, F16>());
    case WeightType::bf16: return visit(trait<WeightType::bf16, BF16>());
    case WeightType::q4_0: return visit(trait<WeightType::q4_0, Q4_0>());
    case WeightType::q4_1: return visit(trait<WeightType::q4_1, Q4_1>());
    case WeightType::q5_0: return visit(trait<WeightType::q5_0, Q5_0>());
    case WeightType::q5_1: return visit(trait<WeightType::q5_1, Q5_1>());
    case WeightType::q8_0: return visit(trait<WeightType::q8_0, Q8_0>());
    case WeightType::q4_k: return visit(trait<WeightType::q4_k, Q4_K>());
    case WeightType::q5_k: return visit(trait<WeightType::q5_k, Q5_K>());
    case WeightType::q6_k: return visit(trait<WeightType::q6_k, Q6_K>());
    case WeightType::q2_k: return visit(trait<WeightType::q2_k, Q2_K>());
    case WeightType::q3_k: return visit(trait<WeightType::q3_k, Q3_K>());
    case WeightType::iq4_nl: return visit(trait<WeightType::iq4_nl, IQ4_NL>());
    case WeightType::iq4_xs: return visit(trait<WeightType::iq4_xs, IQ4_XS>());
    case WeightType::mxfp4: return visit(trait<WeightType::mxfp4, MXFP4>());
  }
  abort();
}

template <class Isa>
void prepare(ActivationKind kind, const float* x, size_t stride, int rows, int columns, int first,
             int last, void* activations) {
  switch (kind) {
    case ActivationKind::float32:
      return prepare_float_rows(x, stride, rows, columns, first, last, activations);
    case ActivationKind::int8_per_32:
      return prepare_rows<Isa, ActivationBlock32, 32>(x, stride, rows, columns, first, last,
                                                      activations);
    case ActivationKind::int8_per_256:
      return prepare_rows<Isa, ActivationBlock256, 256>(x, stride, rows, columns, first, last,
                                                        activations);
    case ActivationKind::planes_per_32:
      return prepare_plane_rows<Isa, ActivationBlock32, 32>(x, stride, rows, columns, first, last,
                                                            activations);
    case ActivationKind::planes_per_256:
      return prepare_plane_rows<Isa, ActivationBlock256, 256>(x, stride, rows, columns, first,
                                                              last, activations);
  }
  abort();
}

template <class Isa>
void multiply(WeightType type, const uint8_t* strip, int columns, const void* activations,
              int rows, float* tile) {
  visit_type(type, [&](auto trait) {
    using Type = decltype(trait);
    if constexpr (Type::kBlockElements == 1) {
      multiply_float_strip<Isa, Type>(strip, columns, activations, rows, tile);
    } else {
      multiply_strip<Isa, Type>(strip, columns, activations, rows, tile);
    }
  });
}

template <class Isa>
void multiply_planes(WeightType type, const uint8_t* strip, int columns, const void* activations,
                     int rows, float* tile) {
  visit_type(type, [&](auto trait) {
    using Type = decltype(trait);
    if constexpr (Type::kBlockElements == 1) {
      multiply_float_strip<Isa, Type>(strip, columns, activations, rows, tile);
    } else {
      multiply_plane_strip<Isa, Type>(strip, columns, activations, rows, tile);
    }
  });
}

constexpr uint8_t kZeroBlock[256] = {};

// Rows past the matrix read a block of zero bytes: every type's value of it is zero.
inline void repack(WeightType type, const uint8_t* source, int rows, int columns, int strip,
                   uint8_t* packed_strip) {
  memset(packed_strip, 0, strip_bytes(type, columns));
  visit_type(type, [&](auto trait) {
    using Type = decltype(trait);
    const int blocks = columns / Type::kBlockElements;
    const size_t row_bytes = static_cast<size_t>(blocks) * Type::kBlockBytes;
    const int first = strip * kStripRows;
    for (int b = 0; b < blocks; ++b) {
      const uint8_t* blocks_of_rows[kStripRows];
      for (int lane = 0; lane < kStripRows; ++lane) {
        blocks_of_rows[lane] = first + lane < rows
                                   ? source + (first + lane) * row_bytes +
                                         static_cast<size_t>(b) * Type::kBlockBytes
                                   : kZeroBlock;
      }
      Type::repack_block(blocks_of_rows, b, packed_strip);
    }
  });
}

inline void dequantise_packed(WeightType type, const uint8_t* strip, int columns, int row,
                              float* out) {
  visit_type(type, [&](auto trait) {
    using Type = decltype(trait);
    for (int b = 0; b < columns / Type::kBlockElements; ++b) {
      Type::dequantise_packed_block(strip, b, row,
                                    out + static_cast<size_t>(b) * Type::kBlockElements);
    }
  });
}

inline void dequantise_source(WeightType type, const uint8_t* source_row, int columns, float* out) {
  visit_type(type, [&](auto trait) {
    using Type = decltype(trait);
    for (int b = 0; b < columns / Type::kBlockElements; ++b) {
      Type::dequantise_source_block(source_row + static_cast<size_t>(b) * Type::kBlockBytes,
                                    out + static_cast<size_t>(b) * Type::kBlockElements);
    }
  });
}

template <class Isa>
constexpr MatmulKernels kernels_of() {
  return {Isa::kName,        prepare<Isa>,     multiply<Isa>, repack,
          dequantise_packed, dequantise_source, multiply_planes<Isa>};
}
