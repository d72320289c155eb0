// Checks the mat-mul kernels of every instruction-set level this processor runs.
//
//   matmul_check                         the grid: types x columns x rows x levels
//   matmul_check planes                  the same for activations of two planes (a16)
//   matmul_check short                   a part of the grid, for emulated processors
//   matmul_check dequantise TYPE COLUMNS one source row on stdin, its values on stdout
//
// Against an oracle in double precision on the same rounded activations, within the bound of the
// f32 steps; against the row computed alone on the portable level, bit by bit. Exit status 1 and
// a line on stderr for each failure.
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "matmul_cases.hh"
#include "planes_check.hh"

namespace {

using namespace matmul_check;

#if defined(__x86_64__)
bool has_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

// As isa/levels.cc: not every compiler that builds the level knows its name.
[[maybe_unused]] bool has_avx_vnni() {
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
#endif

std::vector<const MatmulKernels*> levels() {
  std::vector<const MatmulKernels*> found{&matmul_kernels_portable()};
#if defined(__aarch64__)
  found.push_back(&matmul_kernels_neon());
  found.push_back(&matmul_kernels_neon_i8mm());
#elif defined(__x86_64__)
  if (has_avx2()) found.push_back(&matmul_kernels_avx2());
#if !defined(SLIPSTREAM_WITHOUT_AVX_VNNI)
  if (has_avx_vnni()) found.push_back(&matmul_kernels_avx_vnni());
#endif
  if (has_avx512()) found.push_back(&matmul_kernels_avx512());
#endif
  return found;
}

// tile [rows][16] of one strip for rows [first, first + rows) of x
void multiply(const Case& c, const MatmulKernels& level, const uint8_t* strip, int first, int rows,
              float* tile) {
  const ActivationKind kind = c.traits().activation;
  Buffer prepared(activation_bytes(kind, rows, c.columns));
  const float* x = c.x.data() + static_cast<size_t>(first) * c.columns;
  const int middle = rows / 2;
  level.prepare(kind, x, c.columns, rows, c.columns, middle, rows, prepared.data);
  level.prepare(kind, x, c.columns, rows, c.columns, 0, middle, prepared.data);
  level.multiply(c.facts.type, strip, c.columns, prepared.data, rows, tile);
}

void check_repacked(Case& c, const MatmulKernels& level, int strip, const uint8_t* packed,
                    const uint8_t* reference) {
  if (std::memcmp(packed, reference, strip_bytes(c.facts.type, c.columns)) != 0) {
    c.fail(level, "repacks to other bytes", -1, strip * kStripRows);
  }
  std::vector<float> from_source(c.columns), from_packed(c.columns);
  for (int lane = 0; lane < kStripRows; ++lane) {
    const int output = strip * kStripRows + lane;
    std::fill(from_source.begin(), from_source.end(), 0.0f);
    if (output < c.rows) {
      level.dequantise_source(c.facts.type, c.weights.data() + output * c.row_bytes(), c.columns,
                              from_source.data());
    }
    level.dequantise_packed(c.facts.type, packed, c.columns, lane, from_packed.data());
    for (int k = 0; k < c.columns; ++k) {
      if (from_packed[k] != from_source[k]) {
        c.fail(level, "unpacks to another value", -1, output);
        break;
      }
    }
  }
}

// alone [33][16]: every row computed alone on the portable level
void check_rows(Case& c, const MatmulKernels& level, const uint8_t* strip, const float* alone) {
  Buffer tile(sizeof(float) * kMostRows * kStripRows);
  for (int rows = 1; rows <= kMostRows; rows += rows == 17 ? 14 : 1) {
    const int first = kMostRows - rows;
    multiply(c, level, strip, first, rows, tile.floats());
    for (int r = 0; r < rows; ++r) {
      const float* expected = alone + (first + r) * kStripRows;
      if (std::memcmp(tile.floats() + r * kStripRows, expected, 4 * kStripRows) != 0) {
        c.fail(level, "bits differ from the row alone", first + r, rows);
      }
    }
  }
}

int run_case(const TypeFacts& facts, int rows, int columns, unsigned seed) {
  Random random(seed);
  Case c{facts, rows, columns, random_weights(facts, rows, columns, random),
         random_rows(columns, random)};
  const MatmulKernels& portable = matmul_kernels_portable();
  Buffer reference(strip_bytes(facts.type, columns)), packed(reference.size);
  Buffer alone(sizeof(float) * kMostRows * kStripRows);
  std::vector<std::vector<double>> seen;
  for (int row = 0; row < kMostRows; ++row) {
    seen.push_back(rounded_row(c.traits().activation, &c.x[size_t(row) * columns], columns));
  }
  for (int strip = 0; strip < c.strips(); ++strip) {
    portable.repack(facts.type, c.weights.data(), rows, columns, strip, reference.data);
    for (int row = 0; row < kMostRows; ++row) {
      float* tile = alone.floats() + row * kStripRows;
      multiply(c, portable, reference.data, row, 1, tile);
      const int output = strip * kStripRows + row % kStripRows;
      if (output < rows) check_oracle(c, portable, output, row, tile[row % kStripRows], seen[row]);
    }
    for (const MatmulKernels* level : levels()) {
      level->repack(facts.type, c.weights.data(), rows, columns, strip, packed.data);
      check_repacked(c, *level, strip, packed.data, reference.data);
      check_rows(c, *level, packed.data, alone.floats());
    }
  }
  return c.failures;
}

// NaN or infinity anywhere in a row makes all its outputs NaN or infinite, and leaves others alone.
int run_nonfinite(const TypeFacts& facts) {
  Random random(7);
  const int columns = 512, rows = 16;
  Case c{facts, rows, columns, random_weights(facts, rows, columns, random),
         random_rows(columns, random)};
  c.x[columns + 300] = NAN;
  c.x[2 * columns + 3] = INFINITY;
  Buffer strip(strip_bytes(facts.type, columns));
  Buffer tile(4 * kStripRows * 4), alone(4 * kStripRows);
  for (const MatmulKernels* level : levels()) {
    level->repack(facts.type, c.weights.data(), rows, columns, 0, strip.data);
    multiply(c, *level, strip.data, 0, 4, tile.floats());
    multiply(c, *level, strip.data, 3, 1, alone.floats());
    for (int lane = 0; lane < kStripRows; ++lane) {
      if (!std::isnan(tile.floats()[kStripRows + lane])) c.fail(*level, "hides a NaN", 1, lane);
      if (std::isfinite(tile.floats()[2 * kStripRows + lane])) {
        c.fail(*level, "hides an infinity", 2, lane);
      }
    }
    if (std::memcmp(tile.floats() + 3 * kStripRows, alone.floats(), 4 * kStripRows) != 0) {
      c.fail(*level, "a neighbour's NaN changes a row", 3, 0);
    }
  }
  return c.failures;
}

// An emulated level is compiled without optimisation: a long prompt would take minutes on it.
constexpr int kMostEmulatedRows = 33;

bool is_emulated([[maybe_unused]] const MatmulKernels& level) {
#if defined(SLIPSTREAM_EMULATE_AVX512)
  return std::string(level.isa) == "avx512";
#elif defined(__aarch64__)
  return true;
#else
  return false;
#endif
}

// Prompts: rows of several groups of 16 that share chunks of K, against the rows computed alone.
int run_many(const TypeFacts& facts, int columns, const std::vector<int>& counts) {
  Random random(static_cast<unsigned>(columns));
  const int most = counts.back();
  Case c{facts, kStripRows, columns, random_weights(facts, kStripRows, columns, random),
         random_rows(columns, random, most)};
  const MatmulKernels& portable = matmul_kernels_portable();
  Buffer strip(strip_bytes(facts.type, columns));
  Buffer alone(sizeof(float) * most * kStripRows), tile(alone.size);
  portable.repack(facts.type, c.weights.data(), kStripRows, columns, 0, strip.data);
  for (int row = 0; row < most; ++row) {
    multiply(c, portable, strip.data, row, 1, alone.floats() + row * kStripRows);
  }
  for (const MatmulKernels* level : levels()) {
    for (int rows : counts) {
      if (rows > kMostEmulatedRows && is_emulated(*level)) continue;
      multiply(c, *level, strip.data, 0, rows, tile.floats());
      if (std::memcmp(tile.data, alone.data, sizeof(float) * rows * kStripRows) != 0) {
        c.fail(*level, "many rows differ from the rows alone", rows, 0);
      }
    }
  }
  return c.failures;
}

int run_prompts() {
  int failures = 0;
  for (const TypeFacts& facts : kTypes) {
    // One below, at and above the end of a chunk of K; then several chunks.
    const int block = weight_traits(facts.type)->block_elements;
    const int chunk = block == 1 ? 128 : 512 / block;
    for (int blocks : {chunk - 1, chunk, chunk + 1}) {
      failures += run_many(facts, blocks * block, {17, 31, 32, 33, 48, 49, 64, 100});
    }
    failures += run_many(facts, (2 * chunk + 1) * block, {18, 63, 513});
  }
  return failures;
}

int run_grid(bool is_short) {
  int failures = 0, cases = 0;
  for (const TypeFacts& facts : kTypes) {
    const int block = weight_traits(facts.type)->block_elements;
    std::vector<int> widths{block, 2 * block, 3 * block, 5 * block, 1536, 8960, 14336};
    if (block == 1) widths = {1, 2, 3, 31, 129, 1537};
    if (block == 32) widths.insert(widths.end(), {17 * 32, 33 * 32});
    if (is_short) {
      const auto wide = [](int columns) { return columns > 2000; };
      widths.erase(std::remove_if(widths.begin(), widths.end(), wide), widths.end());
    }
    for (int columns : widths) {
      for (int rows : {1, 15, 16, 17, 48}) {
        if ((columns > 2000 || is_short) && rows != 17) continue;
        failures += run_case(facts, rows, columns, static_cast<unsigned>(columns + rows));
        ++cases;
      }
    }
    failures += run_nonfinite(facts);
  }
  failures += run_prompts();
  std::printf("levels:");
  for (const MatmulKernels* level : levels()) std::printf(" %s", level->isa);
  std::printf("\ncases: %d\nfailures: %d\n", cases, failures);
  return failures == 0 ? 0 : 1;
}

int dequantise(const std::string& name, int columns) {
  for (const TypeFacts& facts : kTypes) {
    const WeightTraits& traits = *weight_traits(facts.type);
    if (name != traits.name) continue;
    std::vector<uint8_t> source(static_cast<size_t>(columns / traits.block_elements) *
                                traits.block_bytes);
    std::vector<float> values(columns);
    if (std::fread(source.data(), 1, source.size(), stdin) != source.size()) return 1;
    for (const MatmulKernels* level : levels()) {
      level->dequantise_source(facts.type, source.data(), columns, values.data());
      std::fwrite(values.data(), 4, values.size(), stdout);
    }
    return 0;
  }
  return 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 4 && std::string(arguments[1]) == "dequantise") {
    return dequantise(arguments[2], std::atoi(arguments[3]));
  }
  if (count == 2 && std::string(arguments[1]) == "planes") return run_planes(levels());
  return run_grid(count == 2 && arguments[1] == std::string("short"));
}
