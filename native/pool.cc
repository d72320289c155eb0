#include "pool.hh"

#include <algorithm>
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

constexpr int kSpins = 2000;   // about 20 us: longer than any pause inside a step
constexpr int kYields = 16;
constexpr int kShares = 8;     // a claim takes 1/8 of a thread's share of what is left

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

uint64_t pack(uint32_t phase, int grain, int items) {
  return uint64_t{phase} << 32 | static_cast<uint64_t>(grain) << 24 | static_cast<uint64_t>(items);
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
  publish();
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
  while (!finished_.load(std::memory_order_acquire)) {
    const uint32_t phase = phase_.load(std::memory_order_acquire);
    if (finished_.load(std::memory_order_acquire)) break;
    while (claim(cursor_.load(std::memory_order_acquire), 0)) {
    }
    if (phase_.load(std::memory_order_acquire) == phase) wait_for_change(phase);
  }
  job_ = nullptr;
}

void Pool::worker(int thread) {
  const FloatMode mode;
  while (!stop_.load(std::memory_order_acquire)) {
    const uint32_t phase = phase_.load(std::memory_order_acquire);
    while (claim(cursor_.load(std::memory_order_acquire), thread)) {
    }
    if (stop_.load(std::memory_order_acquire)) return;
    if (phase_.load(std::memory_order_acquire) == phase) wait_for_change(phase);
  }
}

bool Pool::claim(uint64_t cursor, int thread) {
  const int left = left_of(cursor);
  if (left == 0) return false;
  const int count = std::min(left, std::max(grain_of(cursor), left / (kShares * threads_)));
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
  if (phase_index < phases) {
    index_ = phase_index;
    items_ = items;
    done_.store(0, std::memory_order_relaxed);
    cursor_.store(pack(++sequence_, std::clamp(job_->grain(phase_index), 1, 255), items_),
                  std::memory_order_release);
  } else {
    finished_.store(true, std::memory_order_release);
  }
  publish();
}

// Sequentially consistent with wait_for_change: either the sleeper sees the new phase or this
// thread sees the sleeper.
void Pool::publish() {
  phase_.fetch_add(1);
  if (sleepers_.load() == 0) return;
  const std::lock_guard<std::mutex> lock(sleep_);
  wake_.notify_all();
}

void Pool::wait_for_change(uint32_t phase) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (phase_.load(std::memory_order_acquire) != phase) return;
    pause();
  }
  for (int yield = 0; yield < kYields; ++yield) {
    if (phase_.load(std::memory_order_acquire) != phase) return;
    std::this_thread::yield();
  }
  std::unique_lock<std::mutex> lock(sleep_);
  sleepers_.fetch_add(1);
  wake_.wait(lock, [&] { return phase_.load() != phase; });
  sleepers_.fetch_sub(1);
}

}  // namespace slipstream
