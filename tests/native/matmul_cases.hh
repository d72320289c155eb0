// Random weights and activations for matmul_check, and the oracle in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/matmul.hh"

namespace matmul_check {

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

// Where a block's scale and minimum lie, and how large a weight they allow: |d| * codes + |m| * minimums.
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
    {WeightType::q6_k, 208, -1, 128 * 32, 0},
    {WeightType::q2_k, 80, 82, 15 * 3, 15}, {WeightType::q3_k, 108, -1, 32 * 4, 0},
    {WeightType::iq4_nl, 0, -1, 127, 0},  {WeightType::iq4_xs, 0, -1, 32 * 127, 0},
    {WeightType::mxfp4, 0, -1, 6, 0}};

inline double half_value(const uint8_t* p) {
  uint16_t half;
  std::memcpy(&half, p, 2);
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24)
                                         : std::ldexp(1024 + fraction, exponent - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

using Random = std::mt19937;

// A finite half: mostly of ordinary size, sometimes zero, subnormal or the largest.
inline uint16_t random_half(Random& random) {
  const uint16_t sign = random() & 1 ? 0x8000 : 0;
  switch (random() % 16) {
    case 0: return sign;
    case 1: return sign | (random() & 0x3ff);
    case 2: return sign | 0x7bff;
    default: return sign | static_cast<uint16_t>(0x1800 + random() % 0x1400);
  }
}

// An E8M0 scale: mostly of ordinary size, sometimes the least or a subnormal times two.
inline uint8_t random_power(Random& random) {
  const unsigned kind = random() % 16;
  return static_cast<uint8_t>(kind < 2 ? kind : 107 + random() % 40);
}

inline std::vector<uint8_t> random_weights(const TypeFacts& facts, int rows, int columns,
                                           Random& random) {
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
    } else if (facts.type == WeightType::mxfp4) {
      block[0] = random_power(random);
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
inline std::vector<float> random_rows(int columns, Random& random, int rows = kMostRows) {
  std::vector<float> x(static_cast<size_t>(rows) * columns);
  for (int row = 0; row < rows; ++row) {
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
inline std::vector<double> rounded_row(ActivationKind kind, const float* x, int columns) {
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

inline double scale_value(const Case& c, const uint8_t* field) {
  return c.facts.type == WeightType::mxfp4 ? std::ldexp(1.0, *field - 127) : half_value(field);
}

// The largest weight magnitude that the fields of each block allow.
inline double block_magnitude(const Case& c, const uint8_t* block) {
  const double minimum =
      c.facts.minimum_offset < 0 ? 0 : std::fabs(half_value(block + c.facts.minimum_offset));
  return std::fabs(scale_value(c, block + c.facts.scale_offset)) * c.facts.codes +
         minimum * c.facts.minimums;
}

// One f32 step of a block has at most four roundings, each relative to a sum of magnitudes.
inline void check_oracle(Case& c, const MatmulKernels& level, int output, int row, float found,
                  const std::vector<double>& x) {
  const uint8_t* source = c.weights.data() + output * c.row_bytes();
  std::vector<float> weights(c.columns);
  level.dequantise_source(c.facts.type, source, c.columns, weights.data());
  const int elements = c.traits().block_elements, blocks = c.columns / elements;
  double expected = 0, magnitude = 0;
  for (int k = 0; k < c.columns; ++k) {
    expected += double{weights[k]} * x[k];
    const uint8_t* block = source + k / elements * c.traits().block_bytes;
    const double size = elements == 1 ? std::fabs(double{weights[k]}) : block_magnitude(c, block);
    magnitude += size * std::fabs(x[k]);
  }
  const double bound = 4 * (blocks + 2) * kUnit * magnitude + 1e-37;
  if (!(std::fabs(found - expected) <= bound)) {
    c.fail(level, "differs from the oracle", row, output);
  }
}

}  // namespace matmul_check
