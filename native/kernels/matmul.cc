// Sizes and traits of the weight types: the same on every instruction-set level.
#include "kernels/matmul.hh"

#include "kernels/compiler.hh"

namespace slipstream {
namespace {

#include "kernels/activations.hh"

constexpr size_t kAlignment = 64;

constexpr size_t align(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

const WeightTraits* weight_traits(WeightType type) {
  static constexpr auto kFloat = ActivationKind::float32;
  static constexpr auto k32 = ActivationKind::int8_per_32;
  static constexpr auto k256 = ActivationKind::int8_per_256;
  static constexpr WeightTraits f32{"f32", 1, 4, kFloat};
  static constexpr WeightTraits f16{"f16", 1, 2, kFloat};
  static constexpr WeightTraits bf16{"bf16", 1, 2, kFloat};
  static constexpr WeightTraits q4_0{"q4_0", 32, 18, k32};
  static constexpr WeightTraits q4_1{"q4_1", 32, 20, k32};
  static constexpr WeightTraits q5_0{"q5_0", 32, 22, k32};
  static constexpr WeightTraits q5_1{"q5_1", 32, 24, k32};
  static constexpr WeightTraits q8_0{"q8_0", 32, 34, k32};
  static constexpr WeightTraits q4_k{"q4_k", 256, 144, k256};
  static constexpr WeightTraits q5_k{"q5_k", 256, 176, k256};
  static constexpr WeightTraits q6_k{"q6_k", 256, 210, k256};
  static constexpr WeightTraits q2_k{"q2_k", 256, 84, k256};
  static constexpr WeightTraits q3_k{"q3_k", 256, 110, k256};
  static constexpr WeightTraits iq4_nl{"iq4_nl", 32, 18, k32};
  static constexpr WeightTraits iq4_xs{"iq4_xs", 256, 136, k256};
  static constexpr WeightTraits mxfp4{"mxfp4", 32, 17, k32};
  switch (type) {
    case WeightType::f32: return &f32;
    case WeightType::f16: return &f16;
    case WeightType::bf16: return &bf16;
    case WeightType::q4_0: return &q4_0;
    case WeightType::q4_1: return &q4_1;
    case WeightType::q5_0: return &q5_0;
    case WeightType::q5_1: return &q5_1;
    case WeightType::q8_0: return &q8_0;
    case WeightType::q4_k: return &q4_k;
    case WeightType::q5_k: return &q5_k;
    case WeightType::q6_k: return &q6_k;
    case WeightType::q2_k: return &q2_k;
    case WeightType::q3_k: return &q3_k;
    case WeightType::iq4_nl: return &iq4_nl;
    case WeightType::iq4_xs: return &iq4_xs;
    case WeightType::mxfp4: return &mxfp4;
  }
  return nullptr;
}

ActivationKind activation_kind(WeightType type, Precision precision) {
  const ActivationKind kind = weight_traits(type)->activation;
  if (precision == Precision::a8) return kind;
  if (kind == ActivationKind::int8_per_32) return ActivationKind::planes_per_32;
  return kind == ActivationKind::int8_per_256 ? ActivationKind::planes_per_256 : kind;
}

size_t strip_bytes(WeightType type, int columns) {
  const WeightTraits* traits = weight_traits(type);
  const size_t blocks = static_cast<size_t>(columns) / traits->block_elements;
  return align(blocks * traits->block_bytes * kStripRows);
}

size_t activation_bytes(ActivationKind kind, int rows, int columns) {
  const size_t elements = static_cast<size_t>(rows) * columns;
  switch (kind) {
    case ActivationKind::int8_per_32: return align(elements / 32 * sizeof(ActivationBlock32));
    case ActivationKind::int8_per_256: return align(elements / 256 * sizeof(ActivationBlock256));
    case ActivationKind::planes_per_32:
      return activation_bytes(ActivationKind::int8_per_32, 2 * rows, columns);
    case ActivationKind::planes_per_256:
      return activation_bytes(ActivationKind::int8_per_256, 2 * rows, columns);
    case ActivationKind::float32: break;
  }
  return align(elements * sizeof(float));
}

}  // namespace slipstream
