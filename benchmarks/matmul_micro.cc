// Times one mat-mul level and type on one thread, rows interleaved, next to a read of the same bytes.
//
//   matmul_micro LEVEL TYPE OUTPUTS COLUMNS [ROUNDS]     last line of stdout: JSON
//
// Times are processor time of the thread, so that other processes disturb them less; a row count's
// figure is its median over the rounds. Build: the four native/kernels/matmul*.cc and this file.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "kernels/matmul.hh"

namespace {

using namespace slipstream;

constexpr int kRows[] = {1, 2, 3, 4, 6, 8, 12, 16};

double seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

double least(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

uint8_t* allocate(size_t bytes) {
  return static_cast<uint8_t*>(std::aligned_alloc(1 << 21, (bytes + (1 << 21)) >> 21 << 21));
}

const MatmulKernels& level_named(const std::string& name) {
#if defined(__x86_64__)
  if (name == "avx2") return matmul_kernels_avx2();
  if (name == "avx512") return matmul_kernels_avx512();
#endif
  return matmul_kernels_portable();
}

WeightType type_named(const std::string& name) {
  for (int id = 0; id < 40; ++id) {
    const WeightTraits* traits = weight_traits(static_cast<WeightType>(id));
    if (traits && name == traits->name) return static_cast<WeightType>(id);
  }
  std::fprintf(stderr, "unknown type %s\n", name.c_str());
  std::exit(2);
}

uint64_t read_all(const uint8_t* data, size_t bytes) {
  uint64_t sum[8] = {};
  for (size_t i = 0; i + 64 <= bytes; i += 64) {
    uint64_t word[8];
    std::memcpy(word, data + i, 64);
    for (int j = 0; j < 8; ++j) sum[j] ^= word[j];
  }
  return sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return std::fprintf(stderr, "usage: matmul_micro LEVEL TYPE OUTPUTS COLUMNS\n"), 2;
  const MatmulKernels& level = level_named(arguments[1]);
  const WeightType type = type_named(arguments[2]);
  const int outputs = std::atoi(arguments[3]), columns = std::atoi(arguments[4]);
  const int rounds = count > 5 ? std::atoi(arguments[5]) : 15;
  const WeightTraits& traits = *weight_traits(type);
  const int strips = outputs / kStripRows;
  const size_t bytes = strip_bytes(type, columns);
  uint8_t* packed = allocate(strips * bytes);
  std::vector<uint8_t> source(static_cast<size_t>(outputs) * (columns / traits.block_elements) *
                              traits.block_bytes);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint8_t>(i * 2654435761u >> 24 & 0x3f);
  const double repack_start = seconds();
  for (int s = 0; s < strips; ++s) {
    level.repack(type, source.data(), outputs, columns, s, packed + s * bytes);
  }
  const double repack_s = seconds() - repack_start;
  std::vector<float> x(16 * static_cast<size_t>(columns));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 2654435761u >> 20 & 255) - 127;
  uint8_t* prepared = allocate(activation_bytes(traits.activation, 16, columns));
  auto tile = reinterpret_cast<float*>(allocate(16 * kStripRows * 4));

  std::vector<double> reads, times[8], prepares;
  uint64_t sink = 0;
  for (int round = 0; round < rounds; ++round) {
    double start = seconds();
    sink ^= read_all(packed, strips * bytes);
    reads.push_back(seconds() - start);
    for (int i = 0; i < 8; ++i) {
      start = seconds();
      level.prepare(traits.activation, x.data(), columns, kRows[i], columns, 0, kRows[i], prepared);
      if (i == 7) prepares.push_back(seconds() - start);
      start = seconds();
      for (int s = 0; s < strips; ++s) {
        level.multiply(type, packed + s * bytes, columns, prepared, kRows[i], tile);
      }
      times[i].push_back(seconds() - start);
    }
  }
  const double first = median(times[0]), size = static_cast<double>(strips * bytes);
  std::printf("%s %s %dx%d  read %.1f GB/s, repack %.1f GB/s, prepare 16 rows %.0f us (%d)\n",
              level.isa, traits.name, outputs, columns, size / median(reads) / 1e9,
              source.size() / repack_s / 1e9, median(prepares) * 1e6, static_cast<int>(sink & 1));
  for (int i = 0; i < 8; ++i) {
    const double t = median(times[i]), best = least(times[i]);
    std::printf("  rows %2d  %8.0f us  ratio %.2f  %5.1f GB/s  %6.1f GMAC/s   least %.0f us  %.1f GMAC/s\n",
                kRows[i], t * 1e6, t / first, size / t / 1e9,
                1e-9 * outputs * columns * kRows[i] / t, best * 1e6,
                1e-9 * outputs * columns * kRows[i] / best);
  }
  std::printf("{\"level\": \"%s\", \"type\": \"%s\", \"rows\": [", level.isa, traits.name);
  for (int i = 0; i < 8; ++i) {
    std::printf("%s{\"rows\": %d, \"us\": %.1f}", i ? ", " : "", kRows[i], median(times[i]) * 1e6);
  }
  std::printf("]}\n");
}
