// Row-local float kernels, attention and sampling primitives: the table each level fills in.
//
// Reductions use 16 virtual lanes and one hand-written fold on every level; exp, tanh, log, sin and
// cos are our own polynomials; there is no scalar tail with another formula. So every level gives
// the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace slipstream {

enum class Activation : int { silu = 0, gelu_tanh = 1 };

constexpr int kPagePositions = 64;
constexpr int kSplitPositions = 256;

// How one head's key or value is kept: halves, or blocks of 32 elements: a half (the scale) and 32
// signed bytes (GGML's q8_0 block).
enum class KvType : int { f16 = 0, q8_0 = 1 };

constexpr int kQ8BlockElements = 32;
constexpr int kQ8BlockHalves = 1 + kQ8BlockElements / 2;

// Halves of one head's key; of q8_0, head_dim is a multiple of 32.
constexpr int kv_row_halves(KvType type, int head_dim) {
  return type == KvType::f16 ? head_dim : head_dim / kQ8BlockElements * kQ8BlockHalves;
}

// One query row and one key/value head: its `heads` query heads attend over the row's logical keys
// first .. identity + tail_count - 1. Logical key j < identity lives in slot j; key identity + t in
// slot tail[t]. Slot s is place s % 64 of page pages[s / 64]; a page holds 64 rows of
// kv_row_halves(type, head_dim), pages are `page_stride` halves apart. Softmax is by splits of 256
// logical positions, whose results are merged in ascending order.
struct AttentionTask {
  const float* query;  // [heads][head_dim]
  int heads;
  int head_dim;
  float scale;
  KvType type;
  const uint16_t* keys;
  const uint16_t* values;
  size_t page_stride;
  const int32_t* pages;
  int first;
  int identity;
  const int32_t* tail;
  int tail_count;
  float* scratch;  // attention_scratch_floats(heads, head_dim); of several rows only the first's
  float* out;      // [heads][head_dim]
};

size_t attention_scratch_floats(int heads, int head_dim);
size_t attention_rows_scratch_floats(int rows, int heads, int head_dim);

// Floats of the results of one split: weighted values, maximum and sum of every row and head.
size_t attention_part_floats(int rows, int heads, int head_dim);

// Philox4x32-10 (Salmon et al., SC 2011): one block of four words.
void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

struct SampleParameters {
  double temperature;  // > 0
  int top_k;           // 0 = off
  double top_p;        // 1 = off
  double min_p;        // 0 = off
  uint64_t seed;
  uint64_t index;  // of the emitted token
};

struct VectorKernels {
  const char* isa;
  void (*rms_norm)(const float* x, const float* weight, float epsilon, int groups, int width,
                   float* out);  // weight [width] or nullptr
  void (*rope_table)(int position, const double* frequencies, int pairs, float magnitude,
                     float* cosine, float* sine);
  void (*rope)(const float* x, int heads, int head_dim, int rotary_width, bool neox,
               const float* cosine, const float* sine, float* out);
  void (*add)(const float* a, const float* b, int n, float* out);
  void (*scale)(const float* x, float factor, int n, float* out);
  void (*softcap)(const float* x, float cap, int n, float* out);
  void (*gated)(Activation activation, const float* gate, const float* up, int n, float* out);
  void (*store_half)(const float* x, int n, uint16_t* out);
  void (*load_half)(const uint16_t* x, int n, float* out);
  // One head's key or value row, kv_row_halves(type, n) halves. A q8_0 block: scale = largest
  // magnitude / 127, rounded to half; code = x * (127 / largest) to the nearest integer, ties to
  // even; below a largest magnitude of 2^-100 zeros; with an infinity or a NaN all NaN.
  void (*store_kv)(KvType type, const float* x, int n, uint16_t* out);
  void (*attention)(const AttentionTask& task);
  // Rows of one sequence that differ only in query, first, identity, tail and out: a key or value
  // is converted once for all of them. The bits of each row are those of `attention`.
  void (*attention_rows)(const AttentionTask* tasks, int rows);
  // The same in two steps: results of the splits first .. last - 1 to `parts`, one after another,
  // then, when all splits first .. last - 1 with keys are there, their merge to `out`.
  void (*attention_part)(const AttentionTask* tasks, int rows, int first, int last, float* parts);
  void (*attention_merge)(const AttentionTask* tasks, int rows, int first, int last,
                          const float* parts);

  // Sampling over one row of logits. Ties go to the lowest id.
  int (*argmax)(const float* logits, int n);
  double (*log_sum_exp)(const float* logits, int n);
  // argmax over the candidates left by top-k, top-p, min-p of logit / T + Gumbel(seed, index, id);
  // `scratch` holds n (float, int32) pairs, 8-byte aligned.
  int (*sample)(const float* logits, int n, const SampleParameters& parameters, void* scratch);
  // -log(-log(u)), u = (x + 1/2) / 2^32, x the first word of Philox under key `seed` and counter
  // (token, index low, index high, 0).
  double (*gumbel)(uint64_t seed, uint64_t index, int token);

  void (*exp)(const float* x, int n, float* out);
  void (*tanh)(const float* x, int n, float* out);
  void (*sigmoid)(const float* x, int n, float* out);
  double (*log)(double x);
};

const VectorKernels& vector_kernels_portable();
#if defined(__x86_64__)
const VectorKernels& vector_kernels_avx2();
const VectorKernels& vector_kernels_avx512();
#elif defined(__aarch64__)
const VectorKernels& vector_kernels_neon();
#endif

}  // namespace slipstream
