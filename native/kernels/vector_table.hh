// The table of one level: its translation unit first defines SLIPSTREAM_LEVEL and includes lanes.
#pragma once

#include "attention.hh"
#include "elementwise.hh"
#include "sample.hh"

namespace slipstream::SLIPSTREAM_LEVEL {

constexpr VectorKernels table(const char* isa) {
  VectorKernels kernels{};
  kernels.isa = isa;
  kernels.rms_norm = rms_norm;
  kernels.rope_table = rope_table;
  kernels.rope = rope;
  kernels.add = add;
  kernels.scale = scale;
  kernels.softcap = softcap;
  kernels.gated = gated;
  kernels.store_half = store_half_row;
  kernels.load_half = load_half_row;
  kernels.store_kv = store_kv;
  kernels.attention = attention;
  kernels.attention_rows = attention_rows;
  kernels.attention_part = attention_part;
  kernels.attention_merge = attention_merge;
  kernels.argmax = argmax;
  kernels.log_sum_exp = log_sum_exp;
  kernels.sample = sample;
  kernels.gumbel = gumbel;
  kernels.exp = exp_row;
  kernels.tanh = tanh_row;
  kernels.sigmoid = sigmoid_row;
  kernels.log = log;
  return kernels;
}

}  // namespace slipstream::SLIPSTREAM_LEVEL
