// Sampling candidates as integers whose ascending order is (logit descending, token id ascending).
// Instruction-set neutral: selection and sorting live in vector.cc, one copy for all levels.
#pragma once

#include <cstdint>
#include <cstring>

namespace slipstream {

using CandidateKey = uint64_t;

__attribute__((always_inline)) inline CandidateKey candidate_key(float logit, int token) {
  const float merged = logit + 0.0f;  // -0 and +0 compare equal, so they must share a key
  uint32_t bits;
  memcpy(&bits, &merged, sizeof bits);
  const uint32_t ascending = bits >> 31 ? ~bits : bits | 0x80000000u;
  return CandidateKey(~ascending) << 32 | uint32_t(token);
}

__attribute__((always_inline)) inline float candidate_logit(CandidateKey key) {
  const uint32_t ascending = ~uint32_t(key >> 32);
  const uint32_t bits = ascending >> 31 ? ascending & 0x7fffffffu : ~ascending;
  float logit;
  memcpy(&logit, &bits, sizeof logit);
  return logit;
}

__attribute__((always_inline)) inline int candidate_token(CandidateKey key) {
  return int(uint32_t(key));
}

// Moves the `count` best of `total` keys to the front, the worst of them last.
void keep_best(CandidateKey* keys, int total, int count);
void sort_candidates(CandidateKey* keys, int total);

}  // namespace slipstream
