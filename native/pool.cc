#include "pool.hh"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>

#include "float_mode.hh"

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(_WIN32)
#include <process.h>
#else
#include <unistd.h>
#endif

namespace slipstream {
namespace {

// 10 to 20 us: longer than any pause of a step that has its cores to itself. Whoever waits longer
// waits for a thread that lost its core, and offers it this one by sleeping. Never by yielding: a
// scheduler that counts in slices of milliseconds takes a whole slice for it.
constexpr int kSpins = 1000;
// Sleep is broken off and begun again during a job: a system moves a waiting thread to a core at
// the moment that the core falls idle, but not while the thread's caches are warm (Linux: 500 us).
constexpr std::chrono::microseconds kNap{200};
// A claim takes 1/8 of a thread's share of what is left, so chunks shrink towards the end of a
// phase, and at most 16 grains: far less than a time slice.
constexpr int kShares = 8;
constexpr int kMostGrains = 16;

int64_t process_id() {
#if defined(_WIN32)
  return _getpid();
#else
  return getpid();
#endif
}

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int left_of(uint64_t cursor) { return static_cast<int>(cursor & Pool::kMaxItems); }
int grain_of(uint64_t cursor) { return static_cast<int>(cursor >> 24 & 255); }

uint32_t sequence_of(uint64_t cursor) { return static_cast<uint32_t>(cursor >> 32); }

uint64_t pack(uint32_t sequence, int grain, int items) {
  const uint64_t claims = static_cast<uint64_t>(grain) << 24 | static_cast<uint64_t>(items);
  return uint64_t{sequence} << 32 | claims;
}

// The end of a job. Its caller waits for this word: it is the last that a thread writes for a job.
bool is_idle(uint64_t cursor) { return left_of(cursor) == 0 && grain_of(cursor) == 0; }

// Tests widen the gap between the end of a job and its publication.
void delay_for_tests() {
#if defined(SLIPSTREAM_POOL_DELAY)
  std::this_thread::sleep_for(std::chrono::microseconds(100));
#endif
}

}  // namespace

Pool::Pool(int threads) : threads_(threads), process_(process_id()) {
  if (threads < 1 || threads > kMaxThreads) {
    throw std::invalid_argument("threads must be between 1 and " + std::to_string(kMaxThreads) +
                                ", not " + std::to_string(threads));
  }
  for (int thread = 1; thread < threads; ++thread) {
    workers_.emplace_back([this, thread] { worker(thread); });
  }
}

Pool::~Pool() {
  if (process_ != process_id()) {
    // The workers stayed in the parent process.
    for (std::thread& worker : workers_) worker.detach();
    return;
  }
  stop_.store(true);
  publish(1, 0);
  for (std::thread& worker : workers_) worker.join();
}

void Pool::run(Job& job) {
  if (process_ != process_id()) {
    throw std::runtime_error("the thread pool does not survive fork(); load the model again");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const FloatMode mode;
  job_ = &job;
  finished_.store(false, std::memory_order_relaxed);
  advance(0);
  while (true) {
    const uint64_t cursor = cursor_.load(std::memory_order_acquire);
    if (is_idle(cursor)) break;
    if (!claim(cursor, 0)) wait_for_change(sequence_of(cursor));
  }
  job_ = nullptr;
}

void Pool::worker(int thread) {
  const FloatMode mode;
  while (true) {
    const uint64_t cursor = cursor_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_acquire)) return;
    if (!claim(cursor, thread)) wait_for_change(sequence_of(cursor));
  }
}

bool Pool::claim(uint64_t cursor, int thread) {
  const int left = left_of(cursor);
  if (left == 0) return false;
  const int grain = grain_of(cursor);
  const int share = std::min(left / (kShares * threads_), kMostGrains * grain);
  const int count = std::min(left, std::max(grain, share));
  if (!cursor_.compare_exchange_weak(cursor, cursor - static_cast<uint64_t>(count),
                                     std::memory_order_acq_rel)) {
    return true;
  }
  // Holding items keeps the phase, and so these fields, unchanged.
  const int index = index_;
  const int items = items_;
  job_->work(index, items - left, items - left + count, thread);
  if (done_.fetch_add(count, std::memory_order_acq_rel) + count == items) advance(index + 1);
  return true;
}

void Pool::advance(int phase_index) {
  const int phases = job_->phases();
  int items = 0;
  while (phase_index < phases && (items = job_->items(phase_index)) == 0) ++phase_index;
  if (phase_index == phases) {
    finished_.store(true, std::memory_order_release);
    delay_for_tests();
    publish(0, 0);
    return;
  }
  index_ = phase_index;
  items_ = items;
  done_.store(0, std::memory_order_relaxed);
  publish(std::clamp(job_->grain(phase_index), 1, 255), items);
}

// No claim succeeds meanwhile: no item is left. Sequentially consistent with wait_for_change:
// either the sleeper sees the new sequence number or this thread sees the sleeper.
void Pool::publish(int grain, int items) {
  const uint32_t next = sequence_of(cursor_.load(std::memory_order_relaxed)) + 1;
  cursor_.store(pack(next, grain, items));
  if (sleepers_.load() == 0) return;
  const std::lock_guard<std::mutex> lock(sleep_);
  wake_.notify_all();
}

void Pool::wait_for_change(uint32_t sequence) {
  const auto changed = [&] { return sequence_of(cursor_.load()) != sequence; };
  for (int spin = 0; spin < kSpins; ++spin) {
    if (changed()) return;
    pause();
  }
  std::unique_lock<std::mutex> lock(sleep_);
  sleepers_.fetch_add(1);
  while (!changed()) {
    if (finished_.load(std::memory_order_acquire)) {
      wake_.wait(lock);
    } else {
      wake_.wait_for(lock, kNap);
    }
  }
  sleepers_.fetch_sub(1);
}

}  // namespace slipstream
