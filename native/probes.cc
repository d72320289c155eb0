#include "probes.hh"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "pool.hh"
#include "weights.hh"

namespace slipstream {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 18;
constexpr size_t kLineBytes = 128;  // two cache lines, read at a stretch
constexpr int kMostStreams = 16;

// Adds up `bytes` of each of `streams` places, `distance` bytes apart, a stretch of each in turn.
uint64_t sum_words(const uint8_t* data, size_t bytes, int streams, size_t distance) {
  uint64_t sums[16] = {};
  for (size_t at = 0; at < bytes; at += kLineBytes) {
    for (int stream = 0; stream < streams; ++stream) {
      uint64_t words[16];
      static_assert(sizeof(words) == kLineBytes);
      std::memcpy(words, data + stream * distance + at, sizeof(words));
      for (int lane = 0; lane < 16; ++lane) sums[lane] += words[lane];
    }
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

double read_bandwidth(size_t bytes, int threads, int rounds, int streams) {
  if (streams < 1 || streams > kMostStreams || (streams & (streams - 1)) != 0) {
    throw std::invalid_argument("a bandwidth probe reads 1, 2, 4, 8 or 16 streams");
  }
  const size_t share = kPieceBytes / static_cast<size_t>(streams);
  const size_t pieces = bytes / kPieceBytes;
  if (pieces < 1 || pieces > Pool::kMaxItems || rounds < 1) {
    throw std::invalid_argument("a bandwidth probe needs at least 256 KiB and one round");
  }
  Pool pool(threads);
  Arena arena(bytes);
  uint8_t* data = arena.allocate(bytes);
  const int items = static_cast<int>(pieces);
  parallel_for(pool, items, [&](int first, int last, int) {
    std::memset(data + first * kPieceBytes, 1, (last - first) * kPieceBytes);
  });
  std::atomic<uint64_t> sink{0};
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    parallel_for(pool, items, [&](int first, int last, int) {
      sink += sum_words(data + first * share, (last - first) * share, streams, pieces * share);
    });
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(pieces * kPieceBytes) / elapsed.count());
  }
  if (sink == 0) throw std::runtime_error("the bandwidth probe read nothing");
  return best;
}

}  // namespace slipstream
