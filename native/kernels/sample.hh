// Seeded sampling: argmax of logit / T + Gumbel noise over the kept candidates. Included once per
// level.
#pragma once

#include "candidate_cut.hh"
#include "philox.hh"

namespace slipstream::SLIPSTREAM_LEVEL {

inline double gumbel(uint64_t seed, uint64_t index, int token) {
  const uint32_t key[2] = {uint32_t(seed), uint32_t(seed >> 32)};
  const uint32_t counter[4] = {uint32_t(token), uint32_t(index), uint32_t(index >> 32), 0};
  uint32_t word[4];
  philox4x32(counter, key, word);
  return -log(-log((double(word[0]) + 0.5) * 0x1p-32));
}

// The largest noise: u = 1 - 2^-33 gives 33 ln 2 = 22.8738...
constexpr double kLargestGumbel = 22.875;

// An upper bound of the noise from its Philox word, within 0.07 where the noise is large:
// -log(-log u) <= -log(1 - u), and log2(m 2^e) >= e + m - 1 is read off the float's bits.
SLIPSTREAM_INLINE F32x16 gumbel_bound(const I32x16& words) {
  constexpr double ln2 = 0.6931471805599453, slack = 1e-4;
  const I32x16 half = shift_right<1>(bit_xor(words, set_int(0xffffffffu)));
  const F32x16 tail = maximum(to_float(half), set(0.25f));
  return fma(to_float(integers(tail)), set(float(-ln2 * 0x1p-23)),
             set(float(ln2 * (31 + 127) + slack)));
}

// Best score so far, and the float bounds that let whole blocks be skipped.
struct GumbelRace {
  const SampleParameters& parameters;
  float maximum;
  Cut cut;
  float floor;  // no kept candidate has a lower logit
  double best;
  int token;
  float skip;   // a logit at or below it loses whatever its noise
  float limit;  // logit + T * noise at or below it loses

  void enter(int candidate, float logit) {
    if (!is_kept(cut, logit, candidate)) return;
    if (weight_of(logit, maximum) < parameters.min_p) return;
    const double score = double(logit) / double(parameters.temperature) +
                         gumbel(parameters.seed, parameters.index, candidate);
    if (!(score > best || (score == best && candidate < token))) return;
    best = score;
    token = candidate;
    tighten();
  }

  // The slack, 1e-6 of the operands, covers the float rounding of both bounds and of the scores.
  void tighten() {
    const double temperature = double(parameters.temperature);
    const auto below = [&](double x) {
      return float(x - 1e-6 * (__builtin_fabs(x) + temperature));
    };
    skip = below((best - kLargestGumbel) * temperature);
    limit = below(best * temperature);
  }
};

// A little below the logit at which min-p cuts; the weight itself decides.
inline float min_p_floor(float maximum, float min_p) {
  if (min_p <= 0.0f || maximum - maximum != 0.0f) return -__builtin_inff();
  return float(double(maximum) + log(double(min_p)) - 1e-5 * (1.0 + __builtin_fabs(maximum)));
}

inline void run(GumbelRace& race, const float* logits, int n) {
  const PhiloxStream stream = philox_stream(race.parameters.seed, race.parameters.index);
  const F32x16 temperature = set(race.parameters.temperature);
  for (int i = 0; i < n; i += kLanes) {
    const F32x16 x = load_logits(logits + i, n - i);
    const Mask16 possible = both(greater(x, set(race.skip)), at_least(x, set(race.floor)));
    if (!bits(possible)) continue;
    const F32x16 bound = fma(temperature, gumbel_bound(first_words(stream, i)), x);
    each_bit(bits(both(possible, greater(bound, set(race.limit)))), i,
             [&](int token) { race.enter(token, logits[token]); });
  }
}

// The best logit enters first, so that the race starts with a high score.
inline int sample(const float* logits, int n, const SampleParameters& parameters, void* scratch) {
  const float maximum = row_maximum(logits, n);
  const int first = first_equal(logits, n, maximum);
  const Cut cut =
      candidate_cut(logits, n, maximum, parameters, static_cast<CandidateKey*>(scratch));
  const float lowest = min_p_floor(maximum, parameters.min_p);
  GumbelRace race{parameters,
                  maximum,
                  cut,
                  cut.logit > lowest ? cut.logit : lowest,
                  -__builtin_inf(),
                  first,
                  -__builtin_inff(),
                  -__builtin_inff()};
  race.enter(first, logits[first]);
  run(race, logits, n);
  return race.token;
}

}  // namespace slipstream::SLIPSTREAM_LEVEL
