// Macros for kernels: what must be inlined and which loops must be unrolled or kept.
#pragma once

#if defined(SLIPSTREAM_EMULATE_AVX512)
#define INLINE inline  // the emulation takes minutes to compile otherwise
#else
#define INLINE inline __attribute__((always_inline))
#endif

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define ROLLED _Pragma("GCC unroll 1")
#endif

// Hides a vector's value from the optimiser: GCC otherwise turns a running integer sum into a
// balanced tree of sums, whose terms do not fit the registers.
#if defined(__x86_64__)
#define KEEP_SUM(vector) __asm__("" : "+x"(vector))
#elif defined(__aarch64__)
#define KEEP_SUM(vector) __asm__("" : "+w"(vector))
#endif
