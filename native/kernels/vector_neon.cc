#include "vector.hh"

#define SLIPSTREAM_LEVEL neon
#include "../isa/lanes_neon.hh"
#include "vector_table.hh"

namespace slipstream {

const VectorKernels& vector_kernels_neon() {
  static constexpr VectorKernels kernels = neon::table("neon");
  return kernels;
}

}  // namespace slipstream
