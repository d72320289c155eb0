// How fast a level multiplies with the instructions that its matrix kernels use.
#pragma once

#include <string>
#include <vector>

namespace slipstream {

// unsigned_int8: codes without a sign against signed activations (all types but those below);
// signed_int8: signed weights (Q8_0, table types); float32: fused multiply-adds (F32, F16, BF16).
const std::vector<std::string>& multiply_mixes();

// Multiply-accumulates per second of `threads` threads in a register tile: no loads, no unpacking.
// A level without an entry of its own is measured with portable code.
// Raises std::invalid_argument for an unknown level or mix.
double multiply_peak(const std::string& isa, const std::string& mix, int threads);

}  // namespace slipstream
