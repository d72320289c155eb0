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
    const double score = double(logit) / parameters.temperature +
                         gumbel(parameters.seed, parameters.index, candidate);
    if (!(score > best || (score == best && candidate < token))) return;
    best = score;
    token = candidate;
    tighten();
  }

  // The slack, 4e-6 of the operands, covers the float rounding of both bounds, of the scores and of
  // the temperature times a Gumbel value (at most 23).
  void tighten() {
    const double temperature = parameters.temperature;
    const auto below = [&](double x) {
      return float(x - 4e-6 * (__builtin_fabs(x) + temperature));
    };
    skip = below((best - kLargestGumbel) * temperature);
    limit = below(best * temperature);
  }
};

// A little below the logit at which min-p cuts; the weight itself decides.
inline float min_p_floor(float maximum, double min_p) {
  if (min_p <= 0.0 || maximum - maximum != 0.0f) return -__builtin_inff();
  return float(double(maximum) + log(min_p) - 1e-5 * (1.0 + __builtin_fabs(maximum)));
}

// Tokens that may win, gathered so that their noise is drawn many at a time; a filler's logit is
// minus infinity.
struct Entrants {
  static constexpr int batch = 4 * kLanes;
  alignas(64) uint64_t tokens[batch + kLanes];
  alignas(64) float logits[batch + kLanes];
  int count;

  void add_block(int first, const F32x16& x) {
    store_wide(tokens + count, count_up_from(uint32_t(first)));
    store_wide(tokens + count + 8, count_up_from(uint32_t(first) + 8));
    store(logits + count, x);
    count += kLanes;
  }
  void add_one(int token, float logit) {
    tokens[count] = uint32_t(token);
    logits[count++] = logit;
  }
  void fill_up() {
    while (count % kLanes) add_one(0, -__builtin_inff());
  }
  void drop(int drawn) {
    count -= drawn;
    memmove(tokens, tokens + drawn, size_t(count) * sizeof tokens[0]);
    memmove(logits, logits + drawn, size_t(count) * sizeof logits[0]);
  }
};

// Draws the noise of `count` entrants, a multiple of 16, and enters those whose upper bound beats
// the best score.
inline void draw(GumbelRace& race, const PhiloxStream& stream, Entrants& entrants, int count) {
  alignas(64) uint64_t words[Entrants::batch + kLanes];
  for (int i = 0; i < count; i += 8) first_words_eight(stream, entrants.tokens + i, words + i);
  for (int i = 0; i < count; i += kLanes) {
    const F32x16 noise = gumbel_bound(low_words(load_wide(words + i), load_wide(words + i + 8)));
    const F32x16 bound =
        fma(set(float(race.parameters.temperature)), noise, load(entrants.logits + i));
    each_bit(bits(greater(bound, set(race.limit))), i,
             [&](int place) { race.enter(int(entrants.tokens[place]), entrants.logits[place]); });
  }
  entrants.drop(count);
}

inline void run(GumbelRace& race, const float* logits, int n) {
  constexpr int dense = 10;  // from here on taking a whole block is cheaper than gathering
  const PhiloxStream stream = philox_stream(race.parameters.seed, race.parameters.index);
  const F32x16 nothing = set(-__builtin_inff());
  Entrants entrants;
  entrants.count = 0;
  for (int i = 0; i < n; i += kLanes) {
    const F32x16 x = load_logits(logits + i, n - i);
    const Mask16 possible = both(greater(x, set(race.skip)), at_least(x, set(race.floor)));
    if (__builtin_popcount(bits(possible)) >= dense)
      entrants.add_block(i, select(possible, x, nothing));
    else
      each_bit(bits(possible), i, [&](int token) { entrants.add_one(token, logits[token]); });
    if (entrants.count >= Entrants::batch) draw(race, stream, entrants, Entrants::batch);
  }
  entrants.fill_up();
  draw(race, stream, entrants, entrants.count);
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
