// The inner loop: one group of codes against the same group of a few activation rows.
#pragma once

// Distance of the software prefetch; strips follow each other, so it runs on into the next one.
constexpr int kPrefetchBytes = 2048;

template <class Isa, class Codec>
INLINE void prefetch_group(const uint8_t* planes) {
  for (int p = 0; p < Codec::kPlanes; ++p) {
    Isa::prefetch(planes + p * kPlaneBytes + kPrefetchBytes);
  }
}

// x: the codes of the group in the first row; `stride` bytes between rows.
template <class Isa, class Codec, int kStep, int kRows>
INLINE void add_step(const uint8_t* planes, const int8_t* x, size_t stride,
                     typename Isa::Narrow (&sums)[kRows]) {
  const auto codes = Codec::template unpack<Isa, kStep>(planes);
  UNROLL for (int r = 0; r < kRows; ++r) {
    sums[r] = Isa::dot(sums[r], codes, Isa::broadcast(x + r * stride + (kStep % 8) * 4));
  }
}

// Steps kFirst, kFirst + 1, ... of a group, in any order: the sums are integers.
template <class Isa, class Codec, int kFirst, int kCount, int kRows>
INLINE void add_steps(const uint8_t* planes, const int8_t* x, size_t stride,
                      typename Isa::Narrow (&sums)[kRows]) {
  if constexpr (kCount > 0) {
    add_step<Isa, Codec, kFirst>(planes, x, stride, sums);
    add_steps<Isa, Codec, kFirst + 1, kCount - 1>(planes, x, stride, sums);
  }
}
