// Philox, argmax, log-sum-exp and sampling against a plain oracle that sorts everything.
#include <algorithm>
#include <numeric>

#include "vector_check.hh"

namespace slipstream::check {
namespace {

// Random123's known answers (kat_vectors, philox4x32 10 rounds).
void check_philox() {
  struct Answer {
    uint32_t counter[4], key[2], out[4];
  };
  constexpr uint32_t ones = 0xffffffffu;
  constexpr Answer answers[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{ones, ones, ones, ones}, {ones, ones}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
  for (const Answer& answer : answers) {
    uint32_t out[4];
    philox4x32(answer.counter, answer.key, out);
    expect(std::memcmp(out, answer.out, sizeof out) == 0, "philox known answer %08x", out[0]);
  }
}

double oracle_gumbel(uint64_t seed, uint64_t index, int token) {
  const uint32_t key[2] = {uint32_t(seed), uint32_t(seed >> 32)};
  const uint32_t counter[4] = {uint32_t(token), uint32_t(index), uint32_t(index >> 32), 0};
  uint32_t out[4];
  philox4x32(counter, key, out);
  return -std::log(-std::log((out[0] + 0.5) / 4294967296.0));
}

void check_gumbel(const VectorKernels& kernels) {
  for (int i = 0; i < 20000; ++i) {
    const uint64_t seed = generator()(), index = generator()();
    const double exact = oracle_gumbel(seed, index, i * 7);
    const double error = std::fabs(kernels.gumbel(seed, index, i * 7) - exact);
    expect(error <= 1e-15 * (2 + std::fabs(exact)), "gumbel %g off by %g", exact, error);
  }
}

// Token ids in order (logit descending, id ascending), NaN left out.
std::vector<int> ordered(const Floats& logits) {
  std::vector<int> tokens;
  for (int i = 0; i < int(logits.size()); ++i)
    if (!std::isnan(logits[size_t(i)])) tokens.push_back(i);
  std::stable_sort(tokens.begin(), tokens.end(),
                   [&](int a, int b) { return logits[size_t(a)] > logits[size_t(b)]; });
  return tokens;
}

std::vector<int> filtered(const Floats& logits, const SampleParameters& p) {
  std::vector<int> tokens = ordered(logits);
  if (p.top_k > 0 && size_t(p.top_k) < tokens.size()) tokens.resize(size_t(p.top_k));
  const auto weight = [&](int token) {
    const float peak = logits[size_t(tokens[0])], x = logits[size_t(token)];
    return x == peak ? 1.0 : std::exp(double(x) - double(peak));
  };
  double total = 0.0, sum = 0.0;
  for (int token : tokens) total += weight(token);
  size_t kept = tokens.size();
  for (size_t i = 0; p.top_p < 1.0 && i < tokens.size(); ++i)
    if ((sum += weight(tokens[i])) >= p.top_p * total) {
      kept = i + 1;
      break;
    }
  tokens.resize(kept);
  while (tokens.size() > 1 && weight(tokens.back()) < p.min_p) tokens.pop_back();
  return tokens;
}

int oracle_sample(const Floats& logits, const SampleParameters& p) {
  int best_token = 0;
  double best = -INFINITY;
  bool any = false;
  for (int token : filtered(logits, p)) {
    const double score = double(logits[size_t(token)]) / double(p.temperature) +
                         oracle_gumbel(p.seed, p.index, token);
    if (any && !(score > best || (score == best && token < best_token))) continue;
    best = score, best_token = token, any = true;
  }
  return best_token;
}

int sample(const VectorKernels& kernels, const Floats& logits, const SampleParameters& p) {
  std::vector<uint64_t> scratch(logits.size() + 1, 77);
  const int token = kernels.sample(logits.data(), int(logits.size()), p, scratch.data());
  expect(scratch.back() == 77, "sample writes past its scratch");
  return token;
}

void check_row(const Floats& logits, const char* what, int repeats) {
  const SampleParameters filters[] = {
      {1.0f, 0, 1.0f, 0.0f, 0, 0},  {0.8f, 40, 1.0f, 0.0f, 0, 0},   {1.0f, 0, 0.95f, 0.0f, 0, 0},
      {1.5f, 0, 1.0f, 0.05f, 0, 0}, {0.7f, 20, 0.8f, 0.0f, 0, 0},   {1.0f, 50, 0.9f, 0.02f, 0, 0},
      {9.0f, 1, 1.0f, 0.0f, 0, 0},  {0.01f, 0, 0.999f, 0.0f, 0, 0}, {20.f, 3000, 0.3f, 0.0f, 0, 0},
      {50.f, 0, 0.5f, 1e-3f, 0, 0}, {1.0f, 0, 0.0f, 0.0f, 0, 0},    {1.0f, 0, 1.0f, 1.0f, 0, 0},
      {30.f, 0, 0.95f, 0.0f, 0, 0}};
  for (SampleParameters parameters : filters)
    for (int i = 0; i < repeats; ++i) {
      parameters.seed = generator()();
      parameters.index = generator()() >> (i % 2 ? 50 : 0);
      const int expected = oracle_sample(logits, parameters);
      for (const auto* level : levels()) {
        const int token = sample(*level, logits, parameters);
        expect(token == expected, "%s: %s: token %d instead of %d (T %g k %d p %g min %g)",
               level->isa, what, token, expected, double(parameters.temperature),
               parameters.top_k, parameters.top_p, parameters.min_p);
      }
    }
}

void check_reductions(const Floats& logits, const char* what) {
  const std::vector<int> tokens = ordered(logits);
  const int best = tokens.empty() ? 0 : tokens[0];
  const double peak = tokens.empty() ? -INFINITY : double(logits[size_t(best)]);
  double sum = 0.0;
  for (int token : tokens) sum += std::exp(double(logits[size_t(token)]) - peak);
  const double exact = std::isinf(peak) ? peak : peak + std::log(sum);
  const double first = levels()[0]->log_sum_exp(logits.data(), int(logits.size()));
  for (const auto* level : levels()) {
    const int token = level->argmax(logits.data(), int(logits.size()));
    expect(token == best, "%s: argmax of %s is %d, not %d", level->isa, what, token, best);
    const double value = level->log_sum_exp(logits.data(), int(logits.size()));
    const bool equal = std::memcmp(&value, &first, sizeof value) == 0;
    expect(equal, "%s: log_sum_exp of %s", level->isa, what);
    // Each float exponential is off by 1.2 ulp plus half an ulp of its argument.
    const double slack = 2.5 * 0x1p-23 * (1.0 + 1e-2 * std::fabs(peak));
    expect(value == exact || std::fabs(value - exact) <= slack, "log_sum_exp of %s off by %g", what,
           value - exact);
  }
}

Floats quantised(Floats logits, float step) {
  for (float& value : logits) value = std::round(value / step) * step;
  return logits;
}

Floats with_specials(Floats logits) {
  constexpr float specials[] = {NAN, -INFINITY, 0.0f, -0.0f};
  for (size_t i = 0; i < logits.size(); i += 3) logits[i] = specials[i / 3 % 4];
  return logits;
}

// One peak, and 15 % of the mass more than 12 below it.
Floats far_mass() {
  Floats logits = normal(40000, 0.2f);
  for (float& value : logits) value -= 12.6f;
  logits[12345] = 0.0f;
  return logits;
}

// Half of the tokens 2e-6 above the logit at which a min-p of 0.05 cuts, half as far below.
Floats near_min_p() {
  Floats logits(200);
  const double cut = std::log(double(0.05f));
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = float(cut + (i % 2 ? 2e-6 : -2e-6));
  logits[100] = 0.0f;
  return logits;
}

void check_both(const Floats& logits, const char* what, int repeats) {
  check_reductions(logits, what);
  check_row(logits, what, repeats);
}

}  // namespace

void check_sampling() {
  check_philox();
  for (const auto* level : levels()) check_gumbel(*level);
  for (size_t n : {1, 2, 15, 16, 17, 100, 1000, 5000}) {
    check_both(normal(n, 3.0f), "normal", 8);
    check_both(quantised(normal(n, 3.0f), 0.5f), "many ties", 8);
    check_both(with_specials(normal(n)), "NaN and infinity", 8);
    check_both(Floats(n, 1.25f), "all equal", 4);
    check_both(Floats(n, NAN), "all NaN", 1);
    check_both(Floats(n, -INFINITY), "all minus infinity", 1);
  }
  Floats ascending = normal(40000, 3.0f);
  std::sort(ascending.begin(), ascending.end());
  check_both(ascending, "ascending", 2);
  Floats infinite = normal(100);
  infinite[70] = infinite[31] = INFINITY;
  check_both(infinite, "plus infinity", 4);
  check_both(normal(151936, 3.0f), "large vocabulary", 2);
  check_both(far_mass(), "mass far below the maximum", 4);
  check_row(near_min_p(), "logits beside the min-p boundary", 8);
}

}  // namespace slipstream::check
