#include "peaks.hh"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "isa/levels.hh"
#include "pool.hh"

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

// Opaque to the compiler: a product is formed anew for every accumulator of every loop, and GCC
// keeps the accumulators in registers.
#define UNROLL_SUMS _Pragma("GCC unroll 16")
#define OPAQUE_VECTOR(v) asm volatile("" : "+x"(v))
#define OPAQUE_WIDE_VECTOR(v) asm volatile("" : "+v"(v))
#define OPAQUE_ARM_VECTOR(v) asm volatile("" : "+w"(v))

namespace slipstream {
namespace {

constexpr int kLoops = 1 << 20;
constexpr int kRounds = 5;
constexpr int kSums = 10;  // accumulators: latency times throughput of a fused multiply-add

// Each returns the multiply-accumulates of one loop; `sink` keeps the result alive.
using Dots = int (*)(int loops, float* sink);

// As isa/dot_portable.hh: int16 products of the even and the odd bytes, added in pairs as int32.
int portable_dots(int loops, float* sink) {
  using Bytes = uint32_t __attribute__((vector_size(16)));
  using Shorts = int16_t __attribute__((vector_size(16)));
  using Wide = int32_t __attribute__((vector_size(16)));
  Wide sums[4] = {};
  Bytes codes = Bytes{} + static_cast<uint32_t>(*sink);
  const Bytes x = Bytes{} + 0x00050005u;
  for (int loop = 0; loop < loops; ++loop) {
    for (Wide& sum : sums) {
      asm volatile("" : "+m"(codes));
      const auto even = (Wide)((Shorts)(codes & 0x00ff00ffu) * (Shorts)x);
      const auto odd = (Wide)((Shorts)(codes >> 8 & 0x00ff00ffu) * (Shorts)x);
      sum = sum + (even << 16 >> 16) + (even >> 16) + (odd << 16 >> 16) + (odd >> 16);
    }
  }
  for (const Wide& sum : sums) *sink += static_cast<float>(sum[0]);
  return 4 * 16;
}

int portable_floats(int loops, float* sink) {
  float sums[8] = {};
  const float a = 1.0f + *sink * 1e-9f;
  for (int loop = 0; loop < loops; ++loop) {
    for (float& sum : sums) sum = std::fma(a, 1e-9f, sum);
  }
  for (const float sum : sums) *sink += sum;
  return 8;
}

#if defined(__x86_64__)
#define TARGET_AVX2 __attribute__((target("avx2,fma")))
#define TARGET_AVX_VNNI __attribute__((target("avx2,avxvnni")))
#define TARGET_AVX512 __attribute__((target("avx512f,avx512vnni")))

// maddubs + add of int16 pairs: groups are widened once per 16 or 32 weights.
TARGET_AVX2 int avx2_unsigned(int loops, float* sink) {
  __m256i sums[kSums] = {};
  __m256i codes = _mm256_set1_epi8(static_cast<char>(*sink));
  const __m256i x = _mm256_set1_epi8(5);
  for (int loop = 0; loop < loops; ++loop) {
    UNROLL_SUMS for (__m256i& sum : sums) {
      OPAQUE_VECTOR(codes);
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, x));
      OPAQUE_VECTOR(sum);
    }
  }
  __m256i total = sums[0];
  UNROLL_SUMS for (const __m256i& sum : sums) total = _mm256_add_epi32(total, sum);
  *sink += static_cast<float>(_mm256_extract_epi32(total, 0));
  return kSums * 32;
}

// The sign of the weight moves to the activation, and every pair is widened: it may reach 32512.
TARGET_AVX2 int avx2_signed(int loops, float* sink) {
  __m256i sums[kSums] = {};
  __m256i weights = _mm256_set1_epi8(static_cast<char>(*sink));
  const __m256i x = _mm256_set1_epi8(5);
  const __m256i ones = _mm256_set1_epi16(1);
  for (int loop = 0; loop < loops; ++loop) {
    UNROLL_SUMS for (__m256i& sum : sums) {
      OPAQUE_VECTOR(weights);
      const __m256i pairs = _mm256_maddubs_epi16(weights, _mm256_sign_epi8(x, weights));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
      OPAQUE_VECTOR(sum);
    }
  }
  __m256i total = sums[0];
  UNROLL_SUMS for (const __m256i& sum : sums) total = _mm256_add_epi32(total, sum);
  *sink += static_cast<float>(_mm256_extract_epi32(total, 0));
  return kSums * 32;
}

TARGET_AVX2 int avx2_floats(int loops, float* sink) {
  __m256 sums[kSums] = {};
  __m256 weights = _mm256_set1_ps(*sink);
  const __m256 x = _mm256_set1_ps(1e-9f);
  for (int loop = 0; loop < loops; ++loop) {
    UNROLL_SUMS for (__m256& sum : sums) {
      OPAQUE_VECTOR(weights);
      sum = _mm256_fmadd_ps(weights, x, sum);
      OPAQUE_VECTOR(sum);
    }
  }
  __m256 total = sums[0];
  UNROLL_SUMS for (const __m256& sum : sums) total = _mm256_add_ps(total, sum);
  *sink += _mm256_cvtss_f32(total);
  return kSums * 8;
}

#if !defined(SLIPSTREAM_WITHOUT_AVX_VNNI)
TARGET_AVX_VNNI int avx_vnni_dots(int loops, float* sink) {
  __m256i sums[kSums] = {};
  __m256i codes = _mm256_set1_epi8(static_cast<char>(*sink));
  const __m256i x = _mm256_set1_epi8(5);
  for (int loop = 0; loop < loops; ++loop) {
    UNROLL_SUMS for (__m256i& sum : sums) {
      OPAQUE_VECTOR(codes);
      sum = _mm256_dpbusd_avx_epi32(sum, codes, x);
      OPAQUE_VECTOR(sum);
    }
  }
  __m256i total = sums[0];
  UNROLL_SUMS for (const __m256i& sum : sums) total = _mm256_add_epi32(total, sum);
  *sink += static_cast<float>(_mm256_extract_epi32(total, 0));
  return kSums * 32;
}
#endif

TARGET_AVX512 int avx512_dots(int loops, float* sink) {
  __m512i sums[kSums] = {};
  __m512i codes = _mm512_set1_epi32(static_cast<int>(*sink));
  const __m512i x = _mm512_set1_epi32(0x05050505);
  for (int loop = 0; loop < loops; ++loop) {
    UNROLL_SUMS for (__m512i& sum : sums) {
      OPAQUE_WIDE_VECTOR(codes);
      sum = _mm512_dpbusd_epi32(sum, codes, x);
      OPAQUE_WIDE_VECTOR(sum);
    }
  }
  __m512i total = sums[0];
  UNROLL_SUMS for (const __m512i& sum : sums) total = _mm512_add_epi32(total, sum);
  *sink += static_cast<float>(_mm512_cvtsi512_si32(total));
  return kSums * 64;
}

TARGET_AVX512 int avx512_floats(int loops, float* sink) {
  __m512 sums[kSums] = {};
  __m512 weights = _mm512_set1_ps(*sink);
  const __m512 x = _mm512_set1_ps(1e-9f);
  for (int loop = 0; loop < loops; ++loop) {
    UNROLL_SUMS for (__m512& sum : sums) {
      OPAQUE_WIDE_VECTOR(weights);
      sum = _mm512_fmadd_ps(weights, x, sum);
      OPAQUE_WIDE_VECTOR(sum);
    }
  }
  __m512 total = sums[0];
  UNROLL_SUMS for (const __m512& sum : sums) total = _mm512_add_ps(total, sum);
  *sink += _mm512_cvtss_f32(total);
  return kSums * 16;
}
#endif

#if defined(__aarch64__)
__attribute__((target("arch=armv8.2-a+dotprod"))) int neon_dots(int loops, float* sink) {
  int32x4_t sums[kSums] = {};
  int8x16_t weights = vdupq_n_s8(static_cast<int8_t>(*sink));
  const int8x16_t x = vdupq_n_s8(5);
  for (int loop = 0; loop < loops; ++loop) {
    UNROLL_SUMS for (int32x4_t& sum : sums) {
      OPAQUE_ARM_VECTOR(weights);
      sum = vdotq_s32(sum, weights, x);
      OPAQUE_ARM_VECTOR(sum);
    }
  }
  UNROLL_SUMS for (const int32x4_t& sum : sums) {
    *sink += static_cast<float>(vgetq_lane_s32(sum, 0));
  }
  return kSums * 16;
}

// Unsigned codes by signed activations, as isa/dot_neon_i8mm.hh; signed weights take vdotq.
__attribute__((target("arch=armv8.2-a+i8mm"))) int neon_i8mm_dots(int loops, float* sink) {
  int32x4_t sums[kSums] = {};
  uint8x16_t weights = vdupq_n_u8(static_cast<uint8_t>(*sink));
  const int8x16_t x = vdupq_n_s8(5);
  for (int loop = 0; loop < loops; ++loop) {
    UNROLL_SUMS for (int32x4_t& sum : sums) {
      OPAQUE_ARM_VECTOR(weights);
      sum = vusdotq_s32(sum, weights, x);
      OPAQUE_ARM_VECTOR(sum);
    }
  }
  UNROLL_SUMS for (const int32x4_t& sum : sums) {
    *sink += static_cast<float>(vgetq_lane_s32(sum, 0));
  }
  return kSums * 16;
}

int neon_floats(int loops, float* sink) {
  float32x4_t sums[kSums] = {};
  float32x4_t weights = vdupq_n_f32(*sink);
  const float32x4_t x = vdupq_n_f32(1e-9f);
  for (int loop = 0; loop < loops; ++loop) {
    UNROLL_SUMS for (float32x4_t& sum : sums) {
      OPAQUE_ARM_VECTOR(weights);
      sum = vfmaq_f32(sum, weights, x);
      OPAQUE_ARM_VECTOR(sum);
    }
  }
  UNROLL_SUMS for (const float32x4_t& sum : sums) *sink += vgetq_lane_f32(sum, 0);
  return kSums * 4;
}
#endif

// A level's instructions, in the order of multiply_mixes().
struct LevelDots {
  const char* isa;
  Dots dots[3];
};

// The first entry serves every level that has none of its own.
constexpr LevelDots kLevels[] = {
    {"portable", {portable_dots, portable_dots, portable_floats}},
#if defined(__x86_64__)
    {"avx2", {avx2_unsigned, avx2_signed, avx2_floats}},
#if !defined(SLIPSTREAM_WITHOUT_AVX_VNNI)
    {"avx_vnni", {avx_vnni_dots, avx_vnni_dots, avx2_floats}},
#endif
    {"avx512", {avx512_dots, avx512_dots, avx512_floats}},
#endif
#if defined(__aarch64__)
    {"neon", {neon_dots, neon_dots, neon_floats}},
    {"neon_i8mm", {neon_i8mm_dots, neon_dots, neon_floats}},
#endif
};

Dots dots_of(const std::string& isa, const std::string& mix) {
  const std::vector<std::string>& mixes = multiply_mixes();
  const auto found = std::find(mixes.begin(), mixes.end(), mix);
  if (found == mixes.end()) throw std::invalid_argument("there is no multiply mix '" + mix + "'");
  const LevelDots* level = kLevels;
  for (const LevelDots& candidate : kLevels) {
    if (isa == candidate.isa) level = &candidate;
  }
  return level->dots[found - mixes.begin()];
}

}  // namespace

const std::vector<std::string>& multiply_mixes() {
  static const std::vector<std::string> mixes{"unsigned_int8", "signed_int8", "float32"};
  return mixes;
}

double multiply_peak(const std::string& isa, const std::string& mix, int threads) {
  const Dots dots = dots_of(level(isa).name, mix);
  Pool pool(threads);
  std::vector<float> sinks(static_cast<size_t>(threads) * 16);
  std::atomic<int> per_loop{0};
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    parallel_for(pool, threads, [&](int first, int last, int thread) {
      for (int item = first; item < last; ++item) per_loop = dots(kLoops, &sinks[thread * 16]);
    });
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    const double products = static_cast<double>(per_loop) * kLoops * threads;
    best = std::max(best, products / elapsed.count());
  }
  return best;
}

}  // namespace slipstream
