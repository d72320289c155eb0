// GCC's AVX-512 headers start from undefined registers and pass 64-byte values, and warn of both.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wpsabi"

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
