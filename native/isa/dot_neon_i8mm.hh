// NEON with the int8 matrix extension: products of unsigned codes and signed activations.
//
// Needs FEAT_DotProd and FEAT_I8MM (-march=armv8.2-a+dotprod+i8mm). Included once, inside the
// level's namespace, after dot_neon.hh.
#pragma once

struct NeonI8mm : Neon {
  static constexpr const char* kName = "neon_i8mm";
  static constexpr int kMaxRows = 6;       // of one pass among several
  static constexpr int kMaxRowsAlone = 6;  // of a single pass
  static constexpr int kMaxFloatRows = 6;

  // Codes may take all eight bits.
  static INLINE Narrow dot(Narrow sum, Bytes codes, Activation x) {
    return each<Narrow>(QUARTER {
      int32x4_t out = vusdotq_lane_s32(sum.quarter[q], codes.quarter[q], x, 0);
      KEEP_SUM(out);
      return out;
    });
  }
};
