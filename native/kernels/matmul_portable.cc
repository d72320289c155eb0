// The level that any processor runs. GCC needs -Wno-psabi: no 64-byte vector crosses a call here.
#include <cstdlib>
#include <cstring>
#include <utility>

#include "kernels/compiler.hh"
#include "kernels/matmul.hh"

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
