#include "vector.hh"

#define SLIPSTREAM_LEVEL avx512
#include "../isa/lanes_avx512.hh"
#include "vector_table.hh"

namespace slipstream {

const VectorKernels& vector_kernels_avx512() {
  static constexpr VectorKernels kernels = avx512::table("avx512");
  return kernels;
}

}  // namespace slipstream
