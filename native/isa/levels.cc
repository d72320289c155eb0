#include "levels.hh"

#include <stdexcept>

namespace slipstream {
namespace {

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

bool has_avx512() {
#if defined(SLIPSTREAM_EMULATE_AVX512)
  return has_avx2();
#else
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
#endif
}
#endif

std::vector<Level> detect() {
  std::vector<Level> found{{"portable", &matmul_kernels_portable(), &vector_kernels_portable()}};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (has_avx2()) found.push_back({"avx2", &matmul_kernels_avx2(), &vector_kernels_avx2()});
  if (has_avx512()) {
    found.push_back({"avx512", &matmul_kernels_avx512(), &vector_kernels_avx512()});
  }
#endif
  return found;
}

}  // namespace

const std::vector<Level>& levels() {
  static const std::vector<Level> found = detect();
  return found;
}

const Level& level(const std::string& name) {
  std::string known;
  for (const Level& candidate : levels()) {
    if (name == candidate.name) return candidate;
    known += known.empty() ? candidate.name : std::string(", ") + candidate.name;
  }
  throw std::invalid_argument("instruction set level '" + name +
                              "' is not available; this processor and build offer " + known);
}

}  // namespace slipstream
