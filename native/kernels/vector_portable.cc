#include "vector.hh"

#define SLIPSTREAM_LEVEL portable
#include "../isa/lanes_portable.hh"
#include "vector_table.hh"

namespace slipstream {

const VectorKernels& vector_kernels_portable() {
  static constexpr VectorKernels kernels = portable::table("portable");
  return kernels;
}

}  // namespace slipstream
