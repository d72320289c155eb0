#include "vector.hh"

#define SLIPSTREAM_LEVEL avx2
#include "../isa/lanes_avx2.hh"
#include "vector_table.hh"

namespace slipstream {

const VectorKernels& vector_kernels_avx2() {
  static constexpr VectorKernels kernels = avx2::table("avx2");
  return kernels;
}

}  // namespace slipstream
