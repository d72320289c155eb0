// What the machine can read at most: the limit that slipstream.measure compares kernels with.
#pragma once

#include <cstddef>

namespace slipstream {

// Bytes per second that `threads` threads read from one huge-page buffer of `bytes`, best of
// `rounds`; each thread reads `streams` places far apart in turn.
// Raises std::invalid_argument, std::bad_alloc.
double read_bandwidth(size_t bytes, int threads, int rounds, int streams);

}  // namespace slipstream
