// What the sections of the vector check share: levels, failures, random data, memory comparison.
#pragma once

#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "../../native/kernels/vector.hh"

namespace slipstream::check {

using Floats = std::vector<float>;
using Halves = std::vector<uint16_t>;

inline int failures = 0;

// Counts a failure and prints the first few.
__attribute__((format(printf, 2, 3))) inline void expect(bool passed, const char* format, ...) {
  if (passed || ++failures > 20) return;
  va_list arguments;
  va_start(arguments, format);
  std::fputs("FAIL ", stdout);
  std::vprintf(format, arguments);
  std::fputs("\n", stdout);
  va_end(arguments);
}

// The levels this CPU (or the emulation) can run; portable first.
inline std::vector<const VectorKernels*> levels() {
  std::vector<const VectorKernels*> found{&vector_kernels_portable()};
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2) found.push_back(&vector_kernels_avx2());
#ifdef SLIPSTREAM_EMULATE_AVX512
  const bool avx512 = avx2;
#else
  const bool avx512 = __builtin_cpu_supports("avx512f");
#endif
  if (avx512) found.push_back(&vector_kernels_avx512());
#elif defined(__aarch64__)
  found.push_back(&vector_kernels_neon());
#endif
  return found;
}

inline std::mt19937_64& generator() {
  static std::mt19937_64 engine(20240817);
  return engine;
}

inline Floats normal(size_t n, float deviation = 1.0f) {
  std::normal_distribution<float> distribution(0.0f, deviation);
  Floats values(n);
  for (float& value : values) value = distribution(generator());
  return values;
}

inline float from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Any bit pattern: NaN of every payload, infinities and subnormals included.
inline Floats any_bits(size_t n) {
  Floats values(n);
  for (float& value : values) value = from_bits(uint32_t(generator()()));
  return values;
}

// Equal bits; NaN equals NaN, because which payload survives an operation is not specified.
inline bool same(const Floats& a, const Floats& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0 && !(a[i] != a[i] && b[i] != b[i]))
      return false;
  return true;
}

// Distance from the exact value in units of the float's last place there.
inline double ulps(float value, double exact) {
  if (std::isnan(exact)) return std::isnan(value) ? 0.0 : INFINITY;
  const float nearest = float(exact);
  if (value == nearest) return 0.0;
  if (std::isinf(nearest) || std::isinf(value)) return INFINITY;
  const int exponent = std::max(std::ilogb(exact), -126);
  return std::fabs(double(value) - exact) / std::ldexp(1.0, exponent - 23);
}

void check_math();
void check_elementwise();
void check_attention();
void check_sampling();
void time_kernels();

}  // namespace slipstream::check
