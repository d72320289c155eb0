// AVX-512 intrinsics in terms of AVX2, so that the level can be checked on a processor without it.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx2.h>
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

#include <immintrin.h>
