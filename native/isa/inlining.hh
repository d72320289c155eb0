// How the vector kernels force functions into, or out of, their callers.
#pragma once

#define SLIPSTREAM_INLINE inline __attribute__((always_inline))
#define SLIPSTREAM_OUT_OF_LINE inline __attribute__((noinline))
