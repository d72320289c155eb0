// Attention against a double oracle, and its bit laws: paths, windows, levels.
#include "vector_check_attention.hh"

namespace slipstream::check {
namespace {

constexpr int kHeadDims[] = {32, 64, 80, 128, 256};
constexpr int kKeyCounts[] = {1, 63, 64, 65, 255, 256, 257, 511, 513, 1000};
constexpr int kKeyCountsQ8[] = {1, 65, 257, 513};

Floats attend(const VectorKernels& kernels, const Problem& problem, const Placement& placement,
              int first) {
  Floats out(problem.query.size());
  Floats scratch(attention_scratch_floats(problem.heads, problem.head_dim) + 1, NAN);
  scratch.back() = 7.0f;
  AttentionTask task = task_of(problem, placement, first);
  task.scratch = scratch.data();
  task.out = out.data();
  kernels.attention(task);
  expect(scratch.back() == 7.0f, "attention writes past its scratch");
  return out;
}

// |error| <= max|v| (2 d + n 2^-24): d bounds the error of a score (head_dim / 16 + 6 roundings of
// sum |q k|), n counts the roundings of the weighted sum, of its merges and of exp.
void check_oracle(const VectorKernels& kernels, const Problem& problem, int first) {
  const Floats out = attend(kernels, problem, as_chain(problem), first);
  const size_t dim = size_t(problem.head_dim);
  for (int head = 0; head < problem.heads; ++head) {
    const float* query = &problem.query[size_t(head) * dim];
    std::vector<double> scores, exact(dim);
    double spread = 0.0, total = 0.0;
    for (int j = first; j < problem.count; ++j) {
      double dot = 0.0, size = 0.0;
      for (size_t i = 0; i < dim; ++i) {
        const double product = double(query[i]) * problem.key_floats[size_t(j) * dim + i];
        dot += product, size += std::fabs(product);
      }
      scores.push_back(dot * problem.scale);
      spread = std::max(spread, size * problem.scale);
    }
    const double peak = *std::max_element(scores.begin(), scores.end());
    for (size_t j = 0; j < scores.size(); ++j) {
      const double weight = std::exp(scores[j] - peak);
      total += weight;
      for (size_t i = 0; i < dim; ++i)
        exact[i] += weight * problem.value_floats[(size_t(first) + j) * dim + i];
    }
    const double score_error = (problem.head_dim / 16 + 6) * spread * 0x1p-24;
    const double roundings = 256 + 4 * (problem.count / 256 + 1) + 8;
    const double tolerance = 5.0 * (2 * score_error + roundings * 0x1p-24);
    for (size_t i = 0; i < dim; ++i) {
      const double error = std::fabs(out[size_t(head) * dim + i] - exact[i] / total);
      expect(error <= tolerance, "attention dim %d keys %d first %d: error %g > %g",
             problem.head_dim, problem.count, first, error, tolerance);
    }
  }
}

// A path whose last keys lie in scattered slots has the bits of the chain.
void check_paths(const VectorKernels& kernels, const Problem& problem, int first) {
  const Floats chain = attend(kernels, problem, as_chain(problem), first);
  for (int tail_count : {1, 5, 17, 70}) {
    if (tail_count > problem.count) continue;
    const int identity = problem.count - tail_count;
    std::vector<int32_t> slots(size_t(3 * tail_count));
    std::iota(slots.begin(), slots.end(), identity);
    std::shuffle(slots.begin(), slots.end(), generator());
    slots.resize(size_t(tail_count));
    expect(same(attend(kernels, problem, place(problem, identity, slots), first), chain),
           "%s: path of %d after %d keys is not the chain", kernels.isa, tail_count, identity);
  }
}

void check_levels(const Problem& problem, int first) {
  const Placement chain = as_chain(problem);
  const Floats expected = attend(*levels()[0], problem, chain, first);
  for (const auto* level : levels())
    expect(same(attend(*level, problem, chain, first), expected),
           "%s: attention dim %d heads %d keys %d first %d", level->isa, problem.head_dim,
           problem.heads, problem.count, first);
}

// NaN and infinite keys or values end, and end alike on every level.
void check_hostile(int head_dim) {
  Problem problem(3, head_dim, 300);
  for (size_t i = 0; i < problem.keys.size(); i += 97) problem.keys[i] = uint16_t(generator()());
  for (size_t i = 0; i < problem.values.size(); i += 89)
    problem.values[i] = uint16_t(0x7c00 + i % 3);
  check_levels(problem, 0);
  problem.query[0] = NAN, problem.query[1] = INFINITY;
  check_levels(problem, 17);
}

void check_problem(const Problem& problem, int first) {
  check_levels(problem, first);
  for (const auto* level : levels()) {
    check_oracle(*level, problem, first);
    check_paths(*level, problem, first);
  }
}

}  // namespace

void check_attention() {
  for (int head_dim : kHeadDims) {
    for (int count : kKeyCounts) {
      const Problem problem(count % 4 + 1, head_dim, count);
      for (int window : {0, 1, 100, 512})
        if (window < count) check_problem(problem, window ? count - window : 0);
    }
    for (int count : kKeyCountsQ8) {
      if (!takes(KvType::q8_0, head_dim)) continue;
      const Problem problem(count % 8 + 1, head_dim, count, KvType::q8_0);
      check_problem(problem, count > 100 ? 90 : 0);
    }
    check_hostile(head_dim);
  }
  const Problem odd(5, 100, 200);  // a head width that is no multiple of 16
  check_levels(odd, 0);
  for (const auto* level : levels()) check_oracle(*level, odd, 0);
  check_attention_steps();
}

}  // namespace slipstream::check
