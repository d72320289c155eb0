// Times the mat-mul kernels of one level and type over two threads, next to a read of the weights.
//
//   matmul_micro LEVEL TYPE COLUMNS [ROUNDS]      last line of stdout: JSON
//
// Each sample multiplies another 2,240 outputs of a matrix larger than the caches, row counts
// interleaved; a sample is the slower of the two threads. Other processes only ever lengthen a
// sample, so the figures are the quartile and the least of the rounds.
// Build: this file and native/kernels/matmul*.cc of the architecture with the flags of
// CMakeLists.txt.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/matmul.hh"

namespace {

using namespace slipstream;

constexpr int kRows[] = {1, 2, 3, 4, 5, 6, 8, 12, 16};
constexpr int kMostRows = 16, kSampleStrips = 140;
constexpr size_t kMatrixBytes = 96u << 20, kHugePage = 2u << 20;

double now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

uint8_t* allocate(size_t bytes) {
  const size_t size = (bytes / kHugePage + 1) * kHugePage;
  auto memory = static_cast<uint8_t*>(std::aligned_alloc(kHugePage, size));
  madvise(memory, size, MADV_HUGEPAGE);
  std::memset(memory, 0, size);
  return memory;
}

const MatmulKernels& level_named(const std::string& name) {
#if defined(__x86_64__)
  if (name == "avx2") return matmul_kernels_avx2();
#if !defined(SLIPSTREAM_WITHOUT_AVX_VNNI)
  if (name == "avx_vnni") return matmul_kernels_avx_vnni();
#endif
  if (name == "avx512") return matmul_kernels_avx512();
#elif defined(__aarch64__)
  if (name == "neon") return matmul_kernels_neon();
  if (name == "neon_i8mm") return matmul_kernels_neon_i8mm();
#endif
  if (name == "portable") return matmul_kernels_portable();
  std::fprintf(stderr, "this build has no level %s\n", name.c_str());
  std::exit(2);
}

WeightType type_named(const std::string& name) {
  for (int id = 0; id < 40; ++id) {
    const WeightTraits* traits = weight_traits(static_cast<WeightType>(id));
    if (traits && name == traits->name) return static_cast<WeightType>(id);
  }
  std::fprintf(stderr, "unknown type %s\n", name.c_str());
  std::exit(2);
}

struct Matrix {
  const MatmulKernels& level;
  WeightType type;
  int columns;
  size_t strip_size = strip_bytes(type, columns);
  int strips = static_cast<int>(kMatrixBytes / strip_size) / kSampleStrips * kSampleStrips;
  uint8_t* packed = allocate(strips * strip_size);

  void fill() {
    const WeightTraits& traits = *weight_traits(type);
    std::vector<uint8_t> source(size_t{kStripRows} * columns / traits.block_elements *
                                traits.block_bytes);
    // Every type's scale fields are then ordinary numbers: no subnormals, no NaN.
    for (size_t i = 0; i < source.size(); ++i) {
      source[i] = static_cast<uint8_t>((i * 2654435761u >> 20 & 0x1f) | 0x20);
    }
    for (int s = 0; s < strips; ++s) {
      level.repack(type, source.data(), kStripRows, columns, 0, packed + s * strip_size);
    }
  }

  uint8_t* prepare(int rows) const {
    std::vector<float> x(size_t{kMostRows} * columns);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 2654435761u >> 20 & 255);
    const ActivationKind kind = weight_traits(type)->activation;
    uint8_t* prepared = allocate(activation_bytes(kind, rows, columns));
    level.prepare(kind, x.data(), columns, rows, columns, 0, rows, prepared);
    return prepared;
  }

  void multiply(int first, int last, const uint8_t* x, int rows, float* tile) const {
    for (int s = first; s < last; ++s) {
      level.multiply(type, packed + s * strip_size, columns, x, rows, tile);
    }
  }

  void read(int first, int last, float* sink) const {
    uint64_t sum[8] = {};
    for (size_t i = first * strip_size; i < last * strip_size; i += 64) {
      uint64_t line[8];
      std::memcpy(line, packed + i, 64);
      for (int j = 0; j < 8; ++j) sum[j] ^= line[j];
    }
    std::memcpy(sink, sum, sizeof(sum));
  }
};

// Runs work(thread) on the caller and one helper at once; seconds of the slower one.
class Pair {
 public:
  double run(const std::function<void(int)>& work) {
    work_ = &work;
    const int turn = ++turn_;
    const double mine = timed(0);
    while (done_.load() != turn) {
    }
    return std::max(mine, other_);
  }
  ~Pair() {
    work_ = nullptr;
    ++turn_;
    helper_.join();
  }

 private:
  double timed(int thread) const {
    const double start = now();
    (*work_)(thread);
    return now() - start;
  }
  void serve() {
    for (int turn = 1;; ++turn) {
      while (turn_.load() != turn) {
      }
      if (!work_) return;
      other_ = timed(1);
      done_.store(turn);
    }
  }
  const std::function<void(int)>* work_ = nullptr;
  double other_ = 0;
  std::atomic<int> turn_{0}, done_{0};
  std::thread helper_{[this] { serve(); }};
};

struct Samples {
  std::vector<double> seconds;
  double at(double share) {
    std::sort(seconds.begin(), seconds.end());
    return seconds[static_cast<size_t>(share * (seconds.size() - 1))];
  }
};

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) {
    std::fprintf(stderr, "usage: matmul_micro LEVEL TYPE COLUMNS [ROUNDS]\n");
    return 2;
  }
  Matrix matrix{level_named(arguments[1]), type_named(arguments[2]), std::atoi(arguments[3])};
  const int rounds = count > 4 ? std::atoi(arguments[4]) : 100;
  matrix.fill();
  std::vector<uint8_t*> prepared;
  for (int rows : kRows) prepared.push_back(matrix.prepare(rows));
  float* tiles[2] = {reinterpret_cast<float*>(allocate(65536)),
                     reinterpret_cast<float*>(allocate(65536))};
  Samples reads, times[std::size(kRows)];
  Pair pair;
  int strip = 0;
  const auto sample = [&](const std::function<void(int, int, int)>& work) {
    strip = (strip + kSampleStrips) % matrix.strips;
    constexpr int kHalf = kSampleStrips / 2;
    return pair.run([&](int t) { work(t, strip + t * kHalf, strip + (t + 1) * kHalf); });
  };
  for (int round = 0; round < rounds; ++round) {
    reads.seconds.push_back(
        sample([&](int t, int first, int last) { matrix.read(first, last, tiles[t]); }));
    for (size_t i = 0; i < std::size(kRows); ++i) {
      times[i].seconds.push_back(sample([&](int t, int first, int last) {
        matrix.multiply(first, last, prepared[i], kRows[i], tiles[t]);
      }));
    }
  }
  const double bytes = static_cast<double>(kSampleStrips * matrix.strip_size);
  std::printf("read %.1f GB/s (quartile), %.1f (best)\n", bytes / reads.at(0.25) / 1e9,
              bytes / reads.at(0) / 1e9);
  std::string json;
  for (size_t i = 0; i < std::size(kRows); ++i) {
    const double t = times[i].at(0.25), best = times[i].at(0);
    const double products = 1e-9 * kSampleStrips * kStripRows * matrix.columns * kRows[i];
    std::printf("rows %2d  %7.1f us  ratio %.2f  %5.1f GB/s  %6.1f GMAC/s   best %.1f us  %.2f\n",
                kRows[i], t * 1e6, t / times[0].at(0.25), bytes / t / 1e9, products / t,
                best * 1e6, best / times[0].at(0));
    json += (i ? ", " : "") + ("{\"rows\": " + std::to_string(kRows[i])) +
            ", \"us\": " + std::to_string(t * 1e6) + "}";
  }
  std::printf("{\"level\": \"%s\", \"type\": \"%s\", \"rows\": [%s]}\n", matrix.level.isa,
              arguments[2], json.c_str());
}
