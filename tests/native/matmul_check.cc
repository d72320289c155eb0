// Checks the mat-mul kernels of every instruction-set level this processor runs.
//
//   matmul_check                         the grid: types x columns x rows x levels
//   matmul_check dequantise TYPE COLUMNS one source row on stdin, its values on stdout
//
// Against an oracle in double precision on the same rounded activations, within the bound of the
// f32 steps; against the row computed alone on the portable level, bit by bit. Exit status 1 and
// a line on stderr for each failure.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/matmul.hh"

namespace {

using namespace slipstream;

constexpr int kMostRows = 33;
constexpr double kUnit = 0x1p-24;  // half a unit in the last place of binary32

struct Buffer {  // 64-byte aligned bytes
  explicit Buffer(size_t bytes) : size(bytes) {
    data = static_cast<uint8_t*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64));
  }
  ~Buffer() { std::free(data); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  float* floats() { return reinterpret_cast<float*>(data); }
  uint8_t* data;
  size_t size;
};

// Where a block's half floats lie, and how large a weight they allow: |d| * codes + |m| * minimums.
struct TypeFacts {
  WeightType type;
  int scale_offset;
  int minimum_offset;  // -1: none
  double codes;
  double minimums;
};

constexpr TypeFacts kTypes[] = {
    {WeightType::f32, -1, -1, 0, 0},      {WeightType::f16, -1, -1, 0, 0},
    {WeightType::bf16, -1, -1, 0, 0},     {WeightType::q4_0, 0, -1, 8, 0},
    {WeightType::q4_1, 0, 2, 15, 1},      {WeightType::q5_0, 0, -1, 16, 0},
    {WeightType::q5_1, 0, 2, 31, 1},      {WeightType::q8_0, 0, -1, 128, 0},
    {WeightType::q4_k, 0, 2, 63 * 15, 63}, {WeightType::q5_k, 0, 2, 63 * 31, 63},
    {WeightType::q6_k, 208, -1, 128 * 32, 0}};

std::vector<const MatmulKernels*> levels() {
  std::vector<const MatmulKernels*> found{&matmul_kernels_portable()};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    found.push_back(&matmul_kernels_avx2());
  }
#if defined(SLIPSTREAM_EMULATE_AVX512)
  found.push_back(&matmul_kernels_avx512());
#else
  if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl")) {
    found.push_back(&matmul_kernels_avx512());
  }
#endif
#endif
  return found;
}

double half_value(const uint8_t* p) {
  uint16_t half;
  std::memcpy(&half, p, 2);
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24)
                                         : std::ldexp(1024 + fraction, exponent - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

using Random = std::mt19937;

// A finite half: mostly of ordinary size, sometimes zero, subnormal or the largest.
uint16_t random_half(Random& random) {
  const uint16_t sign = random() & 1 ? 0x8000 : 0;
  switch (random() % 16) {
    case 0: return sign;
    case 1: return sign | (random() & 0x3ff);
    case 2: return sign | 0x7bff;
    default: return sign | static_cast<uint16_t>(0x1800 + random() % 0x1400);
  }
}

std::vector<uint8_t> random_weights(const TypeFacts& facts, int rows, int columns, Random& random) {
  const WeightTraits& traits = *weight_traits(facts.type);
  const int blocks = rows * (columns / traits.block_elements);
  std::vector<uint8_t> bytes(static_cast<size_t>(blocks) * traits.block_bytes);
  for (auto& byte : bytes) byte = static_cast<uint8_t>(random());
  for (int b = 0; b < blocks; ++b) {
    uint8_t* block = &bytes[static_cast<size_t>(b) * traits.block_bytes];
    const auto put_half = [&](int offset) {
      const uint16_t half = random_half(random);
      std::memcpy(block + offset, &half, 2);
    };
    if (facts.type == WeightType::f32) {
      const float value = std::normal_distribution<float>()(random);
      std::memcpy(block, &value, 4);
    } else if (facts.type == WeightType::bf16) {
      block[1] = static_cast<uint8_t>((block[1] & 0x80) | (0x3a + block[1] % 6));
    } else if (facts.type == WeightType::f16) {
      put_half(0);
    } else {
      put_half(facts.scale_offset);
      if (facts.minimum_offset >= 0) put_half(facts.minimum_offset);
    }
  }
  return bytes;
}

// Rows of different size; some hold blocks of zeros, subnormals, extremes or ties.
std::vector<float> random_rows(int columns, Random& random) {
  std::vector<float> x(static_cast<size_t>(kMostRows) * columns);
  for (int row = 0; row < kMostRows; ++row) {
    const float size = std::ldexp(1.0f, static_cast<int>(random() % 41) - 20);
    for (int k = 0; k < columns; ++k) {
      float value = size * std::normal_distribution<float>()(random);
      const int block = k / 32;
      if (row % 5 == 1 && block % 3 == 0) value = 0.0f;
      if (row % 5 == 2 && block % 4 == 1) value = 1e-40f * static_cast<float>(k % 7);
      if (row % 5 == 3 && k % 97 == 5) value *= 1e15f;
      if (row % 5 == 4) value = 0.5f * static_cast<float>(static_cast<int>(random() % 255) - 127);
      x[static_cast<size_t>(row) * columns + k] = value;
    }
  }
  return x;
}

// What a kernel sees of one row: scale * code, in exact arithmetic; the row itself for float types.
std::vector<double> rounded_row(ActivationKind kind, const float* x, int columns) {
  std::vector<double> out(x, x + columns);
  if (kind == ActivationKind::float32) return out;
  const int block = kind == ActivationKind::int8_per_32 ? 32 : 256;
  for (int start = 0; start < columns; start += block) {
    float largest = 0;
    for (int i = 0; i < block; ++i) largest = std::max(largest, std::fabs(x[start + i]));
    const float inverse = largest < 0x1p-100f ? 0.0f : 127.0f / largest;
    const float scale = largest < 0x1p-100f ? 0.0f : largest / 127.0f;
    for (int i = 0; i < block; ++i) {
      out[start + i] = double{scale} * std::nearbyint(x[start + i] * inverse);
    }
  }
  return out;
}

struct Case {
  TypeFacts facts;
  int rows;  // of the weights
  int columns;
  std::vector<uint8_t> weights;
  std::vector<float> x;
  int failures = 0;

  const WeightTraits& traits() const { return *weight_traits(facts.type); }
  size_t row_bytes() const {
    return static_cast<size_t>(columns / traits().block_elements) * traits().block_bytes;
  }
  int strips() const { return (rows + kStripRows - 1) / kStripRows; }

  void fail(const MatmulKernels& level, const char* what, int row, int output) {
    if (failures++ < 3) {
      std::fprintf(stderr, "%s %s %dx%d: %s (activation row %d, output %d)\n", level.isa,
                   traits().name, rows, columns, what, row, output);
    }
  }
};

// The largest weight magnitude that the fields of each block allow.
double block_magnitude(const Case& c, const uint8_t* block) {
  const double minimum =
      c.facts.minimum_offset < 0 ? 0 : std::fabs(half_value(block + c.facts.minimum_offset));
  return std::fabs(half_value(block + c.facts.scale_offset)) * c.facts.codes +
         minimum * c.facts.minimums;
}

// One f32 step of a block has at most four roundings, each relative to a sum of magnitudes.
void check_oracle(Case& c, const MatmulKernels& level, int output, int row, float found,
                  const std::vector<double>& x) {
  const uint8_t* source = c.weights.data() + output * c.row_bytes();
  std::vector<float> weights(c.columns);
  level.dequantise_source(c.facts.type, source, c.columns, weights.data());
  const int elements = c.traits().block_elements, blocks = c.columns / elements;
  double expected = 0, magnitude = 0;
  for (int k = 0; k < c.columns; ++k) {
    expected += double{weights[k]} * x[k];
    const double size = elements == 1 ? std::fabs(double{weights[k]})
                                      : block_magnitude(c, source + k / elements * c.traits().block_bytes);
    magnitude += size * std::fabs(x[k]);
  }
  const double bound = 4 * (blocks + 2) * kUnit * magnitude + 1e-37;
  if (!(std::fabs(found - expected) <= bound)) {
    c.fail(level, "differs from the oracle", row, output);
  }
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

int run_grid() {
  int failures = 0, cases = 0;
  for (const TypeFacts& facts : kTypes) {
    const int block = weight_traits(facts.type)->block_elements;
    std::vector<int> widths{block, 2 * block, 3 * block, 5 * block, 1536, 8960};
    if (block == 1) widths = {1, 2, 3, 31, 129, 1537};
    if (block == 32) widths.insert(widths.end(), {17 * 32, 33 * 32});
    for (int columns : widths) {
      for (int rows : {1, 15, 16, 17, 48}) {
        if (columns > 2000 && rows != 17) continue;
        failures += run_case(facts, rows, columns, static_cast<unsigned>(columns + rows));
        ++cases;
      }
    }
    failures += run_nonfinite(facts);
  }
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
  return run_grid();
}
