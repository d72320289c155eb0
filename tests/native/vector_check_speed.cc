// Timings for a person to read; no limit is checked here.
#include <algorithm>
#include <chrono>
#include <numeric>

#include "vector_check.hh"

namespace slipstream::check {
namespace {

template <class Body>
double best_microseconds(int repeats, Body body) {
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    body(i);
    const auto end = std::chrono::steady_clock::now();
    const std::chrono::duration<double, std::micro> spent = end - start;
    best = std::min(best, spent.count());
  }
  return best;
}

void time_sampling(const VectorKernels& kernels, float deviation, int repeats) {
  constexpr int n = 151936;
  const Floats logits = normal(n, deviation);
  std::vector<uint64_t> scratch(n);
  struct Case {
    const char* name;
    SampleParameters parameters;
  };
  const Case cases[] = {{"plain T 1", {1.0f, 0, 1.0f, 0.0f, 1, 0}},
                        {"plain T 0.8", {0.8f, 0, 1.0f, 0.0f, 1, 0}},
                        {"top_k 40", {0.8f, 40, 1.0f, 0.0f, 1, 0}},
                        {"top_p 0.95", {0.8f, 0, 0.95f, 0.0f, 1, 0}},
                        {"both", {0.8f, 40, 0.95f, 0.0f, 1, 0}},
                        {"min_p 0.05", {0.8f, 0, 1.0f, 0.05f, 1, 0}}};
  for (Case item : cases)
    std::printf("  sample deviation %g %-12s %8.1f us\n", double(deviation), item.name,
                best_microseconds(repeats, [&](int i) {
                  item.parameters.index = uint64_t(i);
                  kernels.sample(logits.data(), n, item.parameters, scratch.data());
                }));
  std::printf("  argmax %.1f us, log_sum_exp %.1f us\n",
              best_microseconds(repeats, [&](int) { kernels.argmax(logits.data(), n); }),
              best_microseconds(repeats, [&](int) { kernels.log_sum_exp(logits.data(), n); }));
}

void time_attention(const VectorKernels& kernels, int heads, int head_dim, int keys, int rows,
                    int repeats) {
  const size_t size = size_t(head_dim) * size_t(keys);
  const Floats x = normal(size), query = normal(size_t(heads * head_dim));
  Halves half(size);
  kernels.store_half(x.data(), int(size), half.data());
  const Halves values = half;
  std::vector<int32_t> pages(size_t(keys / kPagePositions + 1));
  std::iota(pages.begin(), pages.end(), 0);
  Floats out(query.size()), scratch(attention_rows_scratch_floats(rows, heads, head_dim));
  AttentionTask task{};
  task.query = query.data();
  task.heads = heads, task.head_dim = head_dim, task.scale = 0.1f;
  task.keys = half.data(), task.values = values.data();
  task.page_stride = size_t(kPagePositions * head_dim), task.pages = pages.data();
  task.identity = keys, task.scratch = scratch.data(), task.out = out.data();
  const std::vector<AttentionTask> tasks(size_t(rows), task);
  const double spent =
      best_microseconds(repeats, [&](int) { kernels.attention_rows(tasks.data(), rows); });
  const double bytes = 4.0 * double(size);
  std::printf("  attention rows %d heads %d dim %3d keys %5d %9.1f us %6.2f GB/s %6.1f GFLOP/s\n",
              rows, heads, head_dim, keys, spent, 1e-3 * bytes / spent,
              1e-3 * bytes * heads * rows / spent);
}

void time_rows(const VectorKernels& kernels) {
  const Floats x = normal(8960), y = normal(8960);
  Floats out(8960);
  const auto time_gated = [&](Activation activation) {
    return best_microseconds(
        50, [&](int) { kernels.gated(activation, x.data(), y.data(), 8960, out.data()); });
  };
  std::printf("  silu 8960 %.2f us, gelu 8960 %.2f us\n", time_gated(Activation::silu),
              time_gated(Activation::gelu_tanh));
  std::printf("  rms_norm 1536 %.2f us\n", best_microseconds(50, [&](int) {
                kernels.rms_norm(x.data(), y.data(), 1e-6f, 1, 1536, out.data());
              }));
}

}  // namespace

void time_kernels() {
  for (const auto* level : levels()) {
    const bool fast = level->isa != levels()[0]->isa;
    std::printf("%s\n", level->isa);
    for (float deviation : {3.0f, 1.0f}) time_sampling(*level, deviation, fast ? 50 : 3);
    for (int keys : {512, 8192})
      for (int head_dim : {64, 128, 256})
        for (int heads : {1, 3, 6}) time_attention(*level, heads, head_dim, keys, 1, fast ? 20 : 1);
    time_attention(*level, 6, 128, 4096, 4, fast ? 20 : 1);
    time_rows(*level);
  }
}

}  // namespace slipstream::check
