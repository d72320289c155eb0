// Instruction-set levels: which ones this build holds and this processor runs.
#pragma once

#include <string>
#include <vector>

#include "../kernels/matmul.hh"
#include "../kernels/vector.hh"

namespace slipstream {

struct Level {
  const char* name;
  const MatmulKernels* matmul;
  const VectorKernels* vectors;
};

// Available levels, slowest first.
const std::vector<Level>& levels();

// The named level; the caller chooses it (dispatch/select.py), no environment is read here.
// Raises std::invalid_argument when there is no such level here.
const Level& level(const std::string& name);

}  // namespace slipstream
