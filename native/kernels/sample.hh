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

// Tokens that may win, waiting until there are 16 to draw noise for at once.
struct PendingTokens {
  alignas(64) uint64_t tokens[2 * kLanes];
  alignas(64) float logits[2 * kLanes];
  int count;
};

// Draws the noise of 16 tokens and enters those whose upper bound beats the best score.
SLIPSTREAM_INLINE void draw(GumbelRace& race, const PhiloxStream& stream, const uint64_t* tokens,
                            const float* logits, Mask16 possible) {
  const F32x16 noise = gumbel_bound(first_words(stream, tokens));
  const F32x16 bound = fma(set(race.parameters.temperature), noise, load(logits));
  each_bit(bits(both(possible, greater(bound, set(race.limit)))), 0,
           [&](int lane) { race.enter(int(tokens[lane]), logits[lane]); });
}

inline void draw_block(GumbelRace& race, const PhiloxStream& stream, int first, const F32x16& x,
                       Mask16 possible) {
  alignas(64) uint64_t tokens[kLanes];
  alignas(64) float logits[kLanes];
  store_wide(tokens, count_up_from(uint32_t(first)));
  store_wide(tokens + 8, count_up_from(uint32_t(first) + 8));
  store(logits, x);
  draw(race, stream, tokens, logits, possible);
}

inline void draw_pending(GumbelRace& race, const PhiloxStream& stream, PendingTokens& pending) {
  const int count = pending.count < kLanes ? pending.count : kLanes;
  draw(race, stream, pending.tokens, pending.logits, lane_range(0, count));
  pending.count -= count;
  memcpy(pending.tokens, pending.tokens + kLanes, sizeof pending.tokens / 2);
  memcpy(pending.logits, pending.logits + kLanes, sizeof pending.logits / 2);
}

inline void run(GumbelRace& race, const float* logits, int n) {
  constexpr int dense = 10;  // from here on drawing a whole block is cheaper than gathering
  const PhiloxStream stream = philox_stream(race.parameters.seed, race.parameters.index);
  PendingTokens pending{};
  for (int i = 0; i < n; i += kLanes) {
    const F32x16 x = load_logits(logits + i, n - i);
    const Mask16 possible = both(greater(x, set(race.skip)), at_least(x, set(race.floor)));
    const uint32_t mask = bits(possible);
    if (__builtin_popcount(mask) >= dense) {
      draw_block(race, stream, i, x, possible);
      continue;
    }
    each_bit(mask, i, [&](int token) {
      pending.tokens[pending.count] = uint32_t(token);
      pending.logits[pending.count++] = logits[token];
    });
    if (pending.count >= kLanes) draw_pending(race, stream, pending);
  }
  draw_pending(race, stream, pending);
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
