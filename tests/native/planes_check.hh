// Checks of the a16 precision: the records of both planes, and products with them.
//
// Codes and scales are compared exactly with the formula of kernels/planes.hh in plain scalar code,
// their distance from the row with the bound derived there, products with an oracle in double
// precision, and every level and row count bit by bit with the row alone on the portable level.
#pragma once

#include "kernels/compiler.hh"
#include "matmul_cases.hh"

namespace matmul_check {

#include "kernels/activations.hh"

constexpr int kPlaneRowCounts[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33};

// One row as both planes: codes, and the scale of each block.
struct PlaneRow {
  std::vector<int> codes[2];
  std::vector<float> scales[2];
};

inline PlaneRow plane_row(const float* x, int columns, int elements) {
  PlaneRow out;
  for (int start = 0; start < columns; start += elements) {
    float largest = 0;
    for (int i = 0; i < elements; ++i) largest = std::max(largest, std::fabs(x[start + i]));
    const bool zeros = largest < 0x1p-100f;
    const float inverse = zeros ? 0.0f : 127.0f / largest;
    out.scales[0].push_back(zeros ? 0.0f : largest / 127.0f);
    out.scales[1].push_back(out.scales[0].back() / 254.0f);
    for (int i = 0; i < elements; ++i) {
      const float exact = x[start + i] * inverse;
      const float whole = std::nearbyint(exact);
      out.codes[0].push_back(static_cast<int>(whole));
      out.codes[1].push_back(static_cast<int>(std::nearbyint((exact - whole) * 254.0f)));
    }
  }
  return out;
}

// Whether the codes are int8 within +-127 and as near to the row as planes.hh says.
inline bool within_bound(const PlaneRow& row, const float* x, int elements) {
  for (size_t k = 0; k < row.codes[0].size(); ++k) {
    const size_t block = k / elements;
    double largest = 0;
    for (int i = 0; i < elements; ++i) {
      largest = std::max(largest, std::fabs(double{x[block * elements + i]}));
    }
    const double low = row.scales[1][block];
    const double value = double{row.scales[0][block]} * row.codes[0][k] + low * row.codes[1][k];
    const double bound = low == 0 ? largest : low * (0.5 + 128 * kUnit) + 4 * kUnit * largest;
    if (std::abs(row.codes[0][k]) > 127 || std::abs(row.codes[1][k]) > 127) return false;
    if (!(std::fabs(value - x[k]) <= bound)) return false;
  }
  return true;
}

template <class Block>
bool same_records(const Block* records, int rows, int row, const PlaneRow& expected) {
  const int elements = sizeof(Block::codes);
  const int blocks = static_cast<int>(expected.scales[0].size());
  for (int plane = 0; plane < 2; ++plane) {
    for (int b = 0; b < blocks; ++b) {
      const Block& record = records[activation_index(2 * rows, blocks, 2 * row + plane, b)];
      if (record.scale != expected.scales[plane][b]) return false;
      for (int i = 0; i < elements; ++i) {
        if (record.codes[i] != expected.codes[plane][b * elements + i]) return false;
      }
    }
  }
  return true;
}

// Rows [first, first + rows) of the case as planes, prepared in two calls as threads would.
struct Planes {
  Planes(const Case& c, const MatmulKernels& level, int first, int rows)
      : kind(activation_kind(c.facts.type, Precision::a16)),
        prepared(activation_bytes(kind, rows, c.columns)) {
    const float* x = c.x.data() + static_cast<size_t>(first) * c.columns;
    const int middle = rows / 2;
    level.prepare(kind, x, c.columns, rows, c.columns, middle, rows, prepared.data);
    level.prepare(kind, x, c.columns, rows, c.columns, 0, middle, prepared.data);
  }

  bool same(int rows, int row, const PlaneRow& expected) const {
    return kind == ActivationKind::planes_per_32
               ? same_records(reinterpret_cast<const ActivationBlock32*>(prepared.data), rows,
                              row, expected)
               : same_records(reinterpret_cast<const ActivationBlock256*>(prepared.data), rows,
                              row, expected);
  }

  ActivationKind kind;
  Buffer prepared;
};

// Both products have the roundings of check_oracle; their sum has one more.
inline void check_plane_oracle(Case& c, const MatmulKernels& level, int output, int row,
                               float found, const PlaneRow& planes) {
  const uint8_t* source = c.weights.data() + output * c.row_bytes();
  std::vector<float> weights(c.columns);
  level.dequantise_source(c.facts.type, source, c.columns, weights.data());
  const int elements = c.traits().block_elements, blocks = c.columns / elements;
  double expected = 0, magnitude = 0;
  for (int k = 0; k < c.columns; ++k) {
    const int b = k / elements;
    const double hi = double{planes.scales[0][b]} * planes.codes[0][k];
    const double lo = double{planes.scales[1][b]} * planes.codes[1][k];
    expected += double{weights[k]} * (hi + lo);
    magnitude += block_magnitude(c, source + b * c.traits().block_bytes) *
                 (std::fabs(hi) + std::fabs(lo));
  }
  const double bound = 4 * (blocks + 3) * kUnit * magnitude + 1e-37;
  if (!(std::fabs(found - expected) <= bound)) {
    c.fail(level, "planes differ from the oracle", row, output);
  }
}

inline void check_plane_rows(Case& c, const MatmulKernels& level, const uint8_t* strip,
                             const std::vector<PlaneRow>& seen, const float* alone) {
  Buffer tile(sizeof(float) * kMostRows * kStripRows);
  for (const int rows : kPlaneRowCounts) {
    const int first = kMostRows - rows;
    const Planes planes(c, level, first, rows);
    level.multiply_planes(c.facts.type, strip, c.columns, planes.prepared.data, rows,
                          tile.floats());
    for (int r = 0; r < rows; ++r) {
      const float* expected = alone + (first + r) * kStripRows;
      if (!planes.same(rows, r, seen[first + r])) {
        c.fail(level, "prepares other planes", first + r, rows);
      }
      if (std::memcmp(tile.floats() + r * kStripRows, expected, 4 * kStripRows) != 0) {
        c.fail(level, "bits of planes differ from the row alone", first + r, rows);
      }
    }
  }
}

inline int plane_case(const TypeFacts& facts, int rows, int columns,
                      const std::vector<const MatmulKernels*>& levels) {
  Random random(static_cast<unsigned>(columns + rows));
  Case c{facts, rows, columns, random_weights(facts, rows, columns, random),
         random_rows(columns, random)};
  const MatmulKernels& portable = *levels.front();
  const int elements = c.traits().block_elements;
  Buffer strip(strip_bytes(facts.type, columns));
  Buffer alone(sizeof(float) * kMostRows * kStripRows);
  std::vector<PlaneRow> seen;
  for (int row = 0; row < kMostRows; ++row) {
    const float* x = c.x.data() + static_cast<size_t>(row) * columns;
    seen.push_back(plane_row(x, columns, elements));
    if (!within_bound(seen.back(), x, elements)) c.fail(portable, "planes are far off", row, -1);
  }
  for (int s = 0; s < c.strips(); ++s) {
    portable.repack(facts.type, c.weights.data(), rows, columns, s, strip.data);
    for (int row = 0; row < kMostRows; ++row) {
      float* tile = alone.floats() + row * kStripRows;
      const Planes planes(c, portable, row, 1);
      portable.multiply_planes(facts.type, strip.data, columns, planes.prepared.data, 1, tile);
      const int output = s * kStripRows + row % kStripRows;
      if (output >= rows) continue;
      check_plane_oracle(c, portable, output, row, tile[row % kStripRows], seen[row]);
    }
    for (const MatmulKernels* level : levels) {
      check_plane_rows(c, *level, strip.data, seen, alone.floats());
    }
  }
  return c.failures;
}

inline int run_planes(const std::vector<const MatmulKernels*>& levels) {
  int failures = 0, cases = 0;
  for (const TypeFacts& facts : kTypes) {
    const int block = weight_traits(facts.type)->block_elements;
    if (block == 1) continue;
    for (const int columns : {block, 2 * block, 3 * block, 5 * block, 1536}) {
      for (const int rows : {1, 17}) {
        failures += plane_case(facts, rows, columns, levels);
        ++cases;
      }
    }
  }
  std::printf("cases: %d\nfailures: %d\n", cases, failures);
  return failures == 0 && cases > 0 ? 0 : 1;
}

}  // namespace matmul_check
