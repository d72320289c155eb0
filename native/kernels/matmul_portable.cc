// The level that any processor runs.
#include <cstdlib>
#include <cstring>
#include <utility>

#include "kernels/compiler.hh"
#include "kernels/matmul.hh"

// Every function with a vector argument is inlined, so no calling convention is involved.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace slipstream {
namespace matmul_portable {

#include "kernels/bits.hh"
#include "isa/dot_portable.hh"
#include "kernels/matmul_level.hh"

}  // namespace matmul_portable

const MatmulKernels& matmul_kernels_portable() {
  static constexpr MatmulKernels kernels = matmul_portable::kernels_of<matmul_portable::Portable>();
  return kernels;
}

}  // namespace slipstream
