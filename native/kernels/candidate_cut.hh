// Row maximum, log-sum-exp and the filters top-k and top-p over one row of logits. Included once
// per level.
//
// A NaN logit is never a candidate and has no weight.
#pragma once

#include "candidates.hh"
#include "math.hh"

namespace slipstream::SLIPSTREAM_LEVEL {

// The first `count` logits at p, the other lanes minus infinity.
SLIPSTREAM_INLINE F32x16 load_logits(const float* p, int count) {
  if (count >= kLanes) return load(p);
  return select(lane_range(0, count), load_first(p, count), set(-__builtin_inff()));
}

// Minus infinity when every logit is NaN.
inline float row_maximum(const float* logits, int n) {
  F32x16 best[4];
  for (F32x16& value : best) value = set(-__builtin_inff());
  int i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    for (int k = 0; k < 4; ++k) best[k] = maximum(load(logits + i + k * kLanes), best[k]);
  for (; i < n; i += kLanes) best[0] = maximum(load_logits(logits + i, n - i), best[0]);
  return fold_maximum(maximum(maximum(best[0], best[1]), maximum(best[2], best[3])));
}

// 0 when no logit equals `value`.
inline int first_equal(const float* logits, int n, float value) {
  for (int i = 0; i < n; i += kLanes) {
    const uint32_t found = bits(equal(load_first(logits + i, n - i), set(value)));
    const uint32_t valid = n - i < kLanes ? found & ((1u << (n - i)) - 1u) : found;
    if (valid) return i + __builtin_ctz(valid);
  }
  return 0;
}

inline int argmax(const float* logits, int n) {
  return first_equal(logits, n, row_maximum(logits, n));
}

// e^(x - maximum), 1 at the maximum even when it is infinite, 0 for NaN.
SLIPSTREAM_INLINE F32x16 weights_of(const F32x16& x, const F32x16& maximum) {
  const F32x16 weight = select(equal(x, maximum), set(1.0f), exp(sub(x, maximum)));
  return select(equal(x, x), weight, zero());
}

SLIPSTREAM_INLINE float weight_of(float x, float maximum) {
  alignas(64) float lane[kLanes];
  store(lane, weights_of(set(x), set(maximum)));
  return lane[0];
}

// log(sum e^logit); the sum is of float exponentials in 16 double lanes.
inline double log_sum_exp(const float* logits, int n) {
  const float maximum = row_maximum(logits, n);
  if (maximum - maximum != 0.0f) return double(maximum);
  F64x16 sum = zero_double();
  for (int i = 0; i < n; i += kLanes)
    sum = add_widened(sum, weights_of(load_logits(logits + i, n - i), set(maximum)));
  return double(maximum) + log(fold(sum));
}

// The candidates in order (logit descending, id ascending) up to and including a last one.
struct Cut {
  float logit;
  int token;
};

constexpr Cut kKeepAll{-__builtin_inff(), __INT_MAX__};

SLIPSTREAM_INLINE bool is_kept(Cut cut, float logit, int token) {
  return logit > cut.logit || (logit == cut.logit && token <= cut.token);
}

// Calls body(token) for the set bits of a block's mask, in ascending order.
template <class Body>
SLIPSTREAM_INLINE void each_bit(uint32_t mask, int block, Body body) {
  for (; mask; mask &= mask - 1) body(block + __builtin_ctz(mask));
}

SLIPSTREAM_INLINE uint32_t valid_lanes(int count) {
  return count >= kLanes ? 0xffffu : (1u << count) - 1u;
}

// Sorts the `count` best candidates to the front of `keys`; returns how many there are. A buffer of
// at least twice `count` is cut back to the best whenever it is full.
inline int best_candidates(const float* logits, int n, int count, CandidateKey* keys) {
  const int64_t room = int64_t(count) + (count > 1024 ? count : 1024);
  const int capacity = room < n ? int(room) : n;
  int held = 0;
  bool bounded = false;
  float threshold = -__builtin_inff();
  const auto offer = [&](int token) {
    if (held == capacity) {
      keep_best(keys, held, count);
      held = count;
      threshold = candidate_logit(keys[count - 1]);
      bounded = true;
    }
    // Later tokens at the threshold lose the tie to the ones held.
    if (!bounded || logits[token] > threshold) keys[held++] = candidate_key(logits[token], token);
  };
  for (int i = 0; i < n; i += kLanes) {
    const F32x16 x = load_logits(logits + i, n - i), limit = set(threshold);
    const uint32_t mask = bits(bounded ? greater(x, limit) : at_least(x, limit));
    each_bit(mask & valid_lanes(n - i), i, offer);
  }
  const int kept = held < count ? held : count;
  keep_best(keys, held, kept);
  sort_candidates(keys, kept);
  return kept;
}

// Weights of up to 16 candidates; the lanes past `count` are 0.
inline void candidate_weights(const CandidateKey* keys, int count, float maximum, float* weights) {
  for (int i = 0; i < kLanes; ++i) weights[i] = i < count ? candidate_logit(keys[i]) : 0.0f;
  store(weights, weights_of(load(weights), set(maximum)));
}

// Calls body(i, weight) for the candidates in order until it returns true; the index it stopped at,
// or the last one.
template <class Body>
SLIPSTREAM_INLINE int walk_weights(const CandidateKey* keys, int count, float maximum, Body body) {
  alignas(64) float weights[kLanes];
  for (int i = 0; i < count; ++i) {
    if (i % kLanes == 0) candidate_weights(keys + i, count - i, maximum, weights);
    if (body(double(weights[i % kLanes]))) return i;
  }
  return count - 1;
}

// The shortest prefix of sorted candidates whose weights on top of `before` reach `target`.
inline Cut prefix_cut(const CandidateKey* keys, int count, float maximum, double before,
                      double target) {
  double sum = before;
  const int last = walk_weights(keys, count, maximum, [&](double weight) {
    sum += weight;
    return sum >= target;
  });
  return {candidate_logit(keys[last]), candidate_token(keys[last])};
}

inline Cut top_k_cut(const float* logits, int n, float maximum, const SampleParameters& parameters,
                     CandidateKey* keys) {
  const int count = best_candidates(logits, n, parameters.top_k, keys);
  if (count == 0) return kKeepAll;
  double total = 0.0;
  walk_weights(keys, count, maximum, [&](double weight) {
    total += weight;
    return false;
  });
  const double share = parameters.top_p < 1.0 ? parameters.top_p : 2.0;
  return prefix_cut(keys, count, maximum, 0.0, share * total);
}

// Probability mass by distance below the maximum: buckets of 1/16 up to 32, four sums by lane. A
// block of 16 logits without one in the near buckets only adds to the sum `far`.
constexpr int kBuckets = 512, kNearBuckets = 192;

struct MassHistogram {
  double sums[kBuckets][4];
  double far;
  double operator[](int bucket) const {
    const double* part = sums[bucket];
    return (part[0] + part[2]) + (part[1] + part[3]);
  }
  double total() const {
    double sum = far;
    for (int bucket = 0; bucket < kBuckets; ++bucket) sum += (*this)[bucket];
    return sum;
  }
};

// 2^23 + bucket: the integer sits in the low bits, and equal buckets are equal floats.
SLIPSTREAM_INLINE F32x16 shifted_bucket(const F32x16& x, const F32x16& maximum) {
  const F32x16 distance = select(equal(x, maximum), zero(), sub(maximum, x));
  const F32x16 bucket = minimum(mul(distance, set(16.0f)), set(float(kBuckets - 1)));
  return add(bucket, set(0x1p23f));
}

inline void fill(MassHistogram& histogram, const float* logits, int n, float maximum, int near) {
  memset(histogram.sums, 0, sizeof histogram.sums);
  F64x16 far = zero_double();
  const F32x16 end = set(0x1p23f + float(near));
  alignas(64) float weights[kLanes];
  alignas(64) uint32_t buckets[kLanes];
  for (int i = 0; i < n; i += kLanes) {
    const F32x16 x = load_logits(logits + i, n - i);
    const F32x16 weight = weights_of(x, set(maximum)), bucket = shifted_bucket(x, set(maximum));
    if (!bits(greater(end, bucket))) {
      far = add_widened(far, weight);
      continue;
    }
    store(weights, weight);
    store(buckets, integers(bucket));
    for (int lane = 0; lane < kLanes; ++lane)
      histogram.sums[buckets[lane] % kBuckets][lane % 4] += double(weights[lane]);
  }
  histogram.far = fold(far);
}

// Where the mass reaches a target: the bucket, and the mass of those before it.
struct MassPoint {
  int bucket;
  double before;
};

inline MassPoint find(const MassHistogram& histogram, double target) {
  MassPoint point{0, 0.0};
  while (point.bucket < kBuckets - 1 && point.before + histogram[point.bucket] < target)
    point.before += histogram[point.bucket++];
  return point;
}

inline int collect_bucket(const float* logits, int n, float maximum, int bucket,
                          CandidateKey* keys) {
  int held = 0;
  const F32x16 wanted = set(0x1p23f + float(bucket));
  for (int i = 0; i < n; i += kLanes) {
    const F32x16 x = load_logits(logits + i, n - i);
    const Mask16 inside = both(equal(shifted_bucket(x, set(maximum)), wanted), equal(x, x));
    each_bit(bits(inside) & valid_lanes(n - i), i,
             [&](int token) { keys[held++] = candidate_key(logits[token], token); });
  }
  return held;
}

// Only the bucket in which the mass reaches `top_p` is sorted.
inline Cut top_p_cut(const float* logits, int n, float maximum, double top_p, CandidateKey* keys) {
  MassHistogram histogram;
  fill(histogram, logits, n, maximum, kNearBuckets);
  double target = top_p * histogram.total();
  MassPoint point = find(histogram, target);
  if (point.bucket >= kNearBuckets) {
    fill(histogram, logits, n, maximum, kBuckets);
    target = top_p * histogram.total();
    point = find(histogram, target);
  }
  const int held = collect_bucket(logits, n, maximum, point.bucket, keys);
  if (held == 0) return kKeepAll;
  sort_candidates(keys, held);
  return prefix_cut(keys, held, maximum, point.before, target);
}

inline Cut candidate_cut(const float* logits, int n, float maximum,
                         const SampleParameters& parameters, CandidateKey* keys) {
  if (parameters.top_k > 0 && parameters.top_k < n)
    return top_k_cut(logits, n, maximum, parameters, keys);
  if (parameters.top_p < 1.0) return top_p_cut(logits, n, maximum, parameters.top_p, keys);
  return kKeepAll;
}

}  // namespace slipstream::SLIPSTREAM_LEVEL
