// What the machine can do at most: the limits that slipstream.measure compares kernels with.
#pragma once

#include <cstddef>
#include <string>

namespace slipstream {

// Bytes per second that `threads` threads read from one huge-page buffer of `bytes`, best of
// `rounds`. Raises std::invalid_argument, std::bad_alloc.
double read_bandwidth(size_t bytes, int threads, int rounds);

// 8-bit multiply-accumulates per second of the widest integer dot product of a level, registers
// only. Raises std::invalid_argument for an unknown level.
double integer_peak(const std::string& isa, int threads);

}  // namespace slipstream
