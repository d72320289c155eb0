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

// Where a pass takes the codes and the scales of a group from. With several passes over a chunk the
// first one leaves them, unpacked, in a buffer in the first-level cache for the others. A group
// there: the codes of its eight steps, then its scales.
constexpr int shared_group_bytes(int scales) { return (kGroupSteps + scales) * kPlaneBytes; }

struct PackedCodes {
  explicit PackedCodes(uint8_t*) {}
  INLINE PackedCodes at(int) const { return *this; }
  template <class Isa, class Codec, int kStep>
  INLINE typename Isa::Bytes step(const uint8_t* planes) const {
    return Codec::template unpack<Isa, kStep>(planes);
  }
  template <class Isa, int kIndex, class Function>
  INLINE typename Isa::Scale scale(Function make) const {
    return make();
  }
};

struct SharingCodes {
  explicit SharingCodes(uint8_t* buffer) : shared(buffer) {}
  INLINE SharingCodes at(int offset) const { return SharingCodes(shared + offset); }
  template <class Isa, class Codec, int kStep>
  INLINE typename Isa::Bytes step(const uint8_t* planes) const {
    const auto codes = Codec::template unpack<Isa, kStep>(planes);
    Isa::store(shared + kStep * kPlaneBytes, codes);
    return codes;
  }
  template <class Isa, int kIndex, class Function>
  INLINE typename Isa::Scale scale(Function make) const {
    const auto made = make();
    Isa::store_scale(shared + (kGroupSteps + kIndex) * kPlaneBytes, made);
    return made;
  }
  uint8_t* shared;
};

struct SharedCodes {
  explicit SharedCodes(const uint8_t* buffer) : shared(buffer) {}
  INLINE SharedCodes at(int offset) const { return SharedCodes(shared + offset); }
  template <class Isa, class Codec, int kStep>
  INLINE typename Isa::Bytes step(const uint8_t*) const {
    return Isa::load(shared + kStep * kPlaneBytes);
  }
  template <class Isa, int kIndex, class Function>
  INLINE typename Isa::Scale scale(Function) const {
    return Isa::load_scale(shared + (kGroupSteps + kIndex) * kPlaneBytes);
  }
  const uint8_t* shared;
};

// x: the codes of the group in the first row; `stride` bytes between rows.
template <class Isa, class Codec, int kStep, class Source, int kRows>
INLINE void add_step(const uint8_t* planes, Source source, const int8_t* x, size_t stride,
                     typename Isa::Narrow (&sums)[kRows]) {
  const auto codes = source.template step<Isa, Codec, kStep>(planes);
  UNROLL for (int r = 0; r < kRows; ++r) {
    sums[r] = Isa::dot(sums[r], codes, Isa::broadcast(x + r * stride + kStep * 4));
  }
}

// Steps kFirst, kFirst + 1, ... of a group, in any order: the sums are integers.
template <class Isa, class Codec, int kFirst, int kCount, class Source, int kRows>
INLINE void add_steps(const uint8_t* planes, Source source, const int8_t* x, size_t stride,
                      typename Isa::Narrow (&sums)[kRows]) {
  if constexpr (kCount > 0) {
    add_step<Isa, Codec, kFirst>(planes, source, x, stride, sums);
    add_steps<Isa, Codec, kFirst + 1, kCount - 1>(planes, source, x, stride, sums);
  }
}
