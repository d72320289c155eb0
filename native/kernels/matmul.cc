// Sizes and traits of the weight types: the same on every instruction-set level.
#include "kernels/matmul.hh"

#include "kernels/compiler.hh"

namespace slipstream {
namespace {

#include "kernels/activations.hh"

constexpr size_t kAlignment = 64;

constexpr size_t align(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

const WeightTraits* weight_traits(WeightType type) { return find_traits(type); }

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
