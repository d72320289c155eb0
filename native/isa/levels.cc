#include "levels.hh"

#include <stdexcept>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace slipstream {
namespace {

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

bool has_avx_vnni() {
#if defined(SLIPSTREAM_EMULATE_AVX_VNNI)
  return has_avx2();
#else
  unsigned a = 0, b = 0, c = 0, d = 0;
  return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 4 & 1;
#endif
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
#elif defined(__aarch64__) && defined(__linux__)
// The bits of the kernel's asm/hwcap.h, which older C libraries do not name.
bool has_dot_products() { return getauxval(AT_HWCAP) >> 20 & 1; }
bool has_int8_matrices() { return getauxval(AT_HWCAP2) >> 13 & 1; }
#elif defined(__aarch64__) && defined(__APPLE__)
bool has_feature(const char* name) {
  int present = 0;
  size_t size = sizeof(present);
  return sysctlbyname(name, &present, &size, nullptr, 0) == 0 && present != 0;
}
bool has_dot_products() { return has_feature("hw.optional.arm.FEAT_DotProd"); }
bool has_int8_matrices() { return has_feature("hw.optional.arm.FEAT_I8MM"); }
#elif defined(__aarch64__)
bool has_dot_products() { return false; }  // this system has no way to ask that is known here
bool has_int8_matrices() { return false; }
#endif

std::vector<Level> detect() {
  std::vector<Level> found{{"portable", &matmul_kernels_portable(), &vector_kernels_portable()}};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (has_avx2()) found.push_back({"avx2", &matmul_kernels_avx2(), &vector_kernels_avx2()});
#if !defined(SLIPSTREAM_WITHOUT_AVX_VNNI)
  if (has_avx_vnni()) {
    found.push_back({"avx_vnni", &matmul_kernels_avx_vnni(), &vector_kernels_avx2()});
  }
#endif
  if (has_avx512()) {
    found.push_back({"avx512", &matmul_kernels_avx512(), &vector_kernels_avx512()});
  }
#elif defined(__aarch64__)
  if (has_dot_products()) {
    found.push_back({"neon", &matmul_kernels_neon(), &vector_kernels_neon()});
    if (has_int8_matrices()) {
      found.push_back({"neon_i8mm", &matmul_kernels_neon_i8mm(), &vector_kernels_neon()});
    }
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
