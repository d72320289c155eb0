#include "probes.hh"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "isa/levels.hh"
#include "pool.hh"
#include "weights.hh"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace slipstream {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 18;
constexpr int kPeakLoops = 1 << 21;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

uint64_t sum_words(const uint8_t* data, size_t bytes) {
  uint64_t sums[16] = {};
  for (size_t at = 0; at + sizeof(sums) <= bytes; at += sizeof(sums)) {
    uint64_t words[16];
    std::memcpy(words, data + at, sizeof(words));
    for (int lane = 0; lane < 16; ++lane) sums[lane] += words[lane];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

// Each returns the multiply-accumulates of one loop; `sink` keeps the result alive.
int portable_dots(int loops, int* sink) {
  int8_t a[32];
  int8_t b[32];
  for (int i = 0; i < 32; ++i) a[i] = b[i] = static_cast<int8_t>(i + *sink);
  int sums[4] = {};
  for (int loop = 0; loop < loops; ++loop) {
    for (int i = 0; i < 32; ++i) sums[i & 3] += a[i] * b[(i + loop) & 31];
  }
  *sink += sums[0] + sums[1] + sums[2] + sums[3];
  return 32;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) int avx2_dots(int loops, int* sink) {
  __m256i sums[8];
  for (int i = 0; i < 8; ++i) sums[i] = _mm256_set1_epi32(i);
  const __m256i a = _mm256_set1_epi8(static_cast<char>(3 + (*sink & 1)));
  __m256i b = _mm256_set1_epi8(5);
  const __m256i ones = _mm256_set1_epi16(1);
  for (int loop = 0; loop < loops; ++loop) {
    // Opaque to the compiler, so that no product is hoisted out of the loop.
    asm volatile("" : "+x"(b));
    for (__m256i& sum : sums) {
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
      asm volatile("" : "+x"(b));
    }
  }
  for (const __m256i& sum : sums) *sink += _mm256_extract_epi32(sum, 0);
  return 8 * 32;
}

#if !defined(SLIPSTREAM_WITHOUT_AVX_VNNI)
__attribute__((target("avx2,avxvnni"))) int avx_vnni_dots(int loops, int* sink) {
  __m256i sums[12];
  for (int i = 0; i < 12; ++i) sums[i] = _mm256_set1_epi32(i);
  const __m256i a = _mm256_set1_epi32(0x03030303 + (*sink & 1));
  __m256i b = _mm256_set1_epi32(0x05050505);
  for (int loop = 0; loop < loops; ++loop) {
    asm volatile("" : "+x"(b));
    for (__m256i& sum : sums) sum = _mm256_dpbusd_avx_epi32(sum, a, b);
  }
  for (const __m256i& sum : sums) *sink += _mm256_extract_epi32(sum, 0);
  return 12 * 32;
}
#endif

__attribute__((target("avx512f,avx512vnni"))) int avx512_dots(int loops, int* sink) {
  __m512i sums[12];
  for (int i = 0; i < 12; ++i) sums[i] = _mm512_set1_epi32(i);
  const __m512i a = _mm512_set1_epi32(0x03030303 + (*sink & 1));
  __m512i b = _mm512_set1_epi32(0x05050505);
  for (int loop = 0; loop < loops; ++loop) {
    asm volatile("" : "+v"(b));
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, a, b);
  }
  int lanes[16];
  for (const __m512i& sum : sums) {
    _mm512_storeu_si512(lanes, sum);
    *sink += lanes[0];
  }
  return 12 * 64;
}
#elif defined(__aarch64__)
// In assembly, because compilers disagree on how one function is given an extension.
int neon_dots(int loops, int* sink) {
  int32x4_t sums[16];
  for (int i = 0; i < 16; ++i) sums[i] = vdupq_n_s32(i);
  const int8x16_t a = vdupq_n_s8(static_cast<int8_t>(3 + (*sink & 1)));
  const int8x16_t b = vdupq_n_s8(5);
  for (int loop = 0; loop < loops; ++loop) {
    for (int32x4_t& sum : sums) {
      asm volatile(".arch armv8.2-a+dotprod\n\tsdot %0.4s, %1.16b, %2.16b"
                   : "+w"(sum)
                   : "w"(a), "w"(b));
    }
  }
  for (const int32x4_t& sum : sums) *sink += vgetq_lane_s32(sum, 0);
  return 16 * 16;
}
#endif

using Dots = int (*)(int loops, int* sink);

Dots dots_of(const std::string& isa) {
#if defined(__x86_64__)
  if (isa == "avx2") return avx2_dots;
#if !defined(SLIPSTREAM_WITHOUT_AVX_VNNI)
  if (isa == "avx_vnni") return avx_vnni_dots;
#endif
  if (isa == "avx512") return avx512_dots;
#elif defined(__aarch64__)
  if (isa == "neon" || isa == "neon_i8mm") return neon_dots;
#endif
  return portable_dots;
}

}  // namespace

double read_bandwidth(size_t bytes, int threads, int rounds) {
  if (bytes < kPieceBytes || bytes / kPieceBytes > Pool::kMaxItems || rounds < 1) {
    throw std::invalid_argument("a bandwidth probe needs at least 256 KiB and one round");
  }
  Pool pool(threads);
  Arena arena(bytes);
  uint8_t* data = arena.allocate(bytes);
  const int pieces = static_cast<int>(bytes / kPieceBytes);
  parallel_for(pool, pieces, [&](int first, int last, int) {
    std::memset(data + first * kPieceBytes, 1, (last - first) * kPieceBytes);
  });
  std::atomic<uint64_t> sink{0};
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    parallel_for(pool, pieces, [&](int first, int last, int) {
      sink += sum_words(data + first * kPieceBytes, (last - first) * kPieceBytes);
    });
    best = std::max(best, static_cast<double>(pieces) * kPieceBytes / seconds_since(start));
  }
  if (sink == 0) throw std::runtime_error("the bandwidth probe read nothing");
  return best;
}

double integer_peak(const std::string& isa, int threads) {
  const Dots dots = dots_of(level(isa).name);
  Pool pool(threads);
  std::vector<int> sinks(static_cast<size_t>(threads) * 16);
  std::atomic<int> per_loop{0};
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    const auto start = std::chrono::steady_clock::now();
    parallel_for(pool, threads, [&](int first, int last, int thread) {
      for (int item = first; item < last; ++item) per_loop = dots(kPeakLoops, &sinks[thread * 16]);
    });
    const double products = static_cast<double>(per_loop) * kPeakLoops * threads;
    best = std::max(best, products / seconds_since(start));
  }
  return best;
}

}  // namespace slipstream
