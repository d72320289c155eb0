// The thread pool: one wake-up per job, then phase after phase without a lock.
//
// A phase is finished when all its items are done, not when all threads have arrived: a worker that
// the system took off its core delays at most the chunk it holds.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace slipstream {

// A sequence of phases; items of a phase are independent, phases run in order.
class Job {
 public:
  virtual ~Job() = default;
  virtual int phases() const = 0;
  // Items of a phase (0 = skip, at most Pool::kMaxItems). Called once all earlier phases are
  // finished.
  virtual int items(int phase) const = 0;
  // The fewest items worth claiming at once (1..255).
  virtual int grain(int phase) const = 0;
  virtual void work(int phase, int first, int last, int thread) = 0;
};

class Pool {
 public:
  // Raises std::invalid_argument unless 1 <= threads <= kMaxThreads.
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  static constexpr int kMaxThreads = 512;
  static constexpr int kMaxItems = (1 << 24) - 1;
  int threads() const { return threads_; }

  // Runs all phases; the calling thread works too. Jobs of several callers run one after another.
  // Raises std::runtime_error in a process forked from the one that made the pool.
  void run(Job& job);

 private:
  void worker(int thread);
  bool claim(uint64_t cursor, int thread);
  void advance(int phase_index);
  void publish(int grain, int items);  // opens the next phase and wakes sleepers
  void wait_for_change(uint32_t sequence);

  int threads_;
  int64_t process_;
  std::mutex mutex_;
  std::vector<std::thread> workers_;

  // [sequence number of the phase : 32 | grain : 8 | items left : 24], so that one compare-and-swap
  // claims a chunk of exactly the phase that was looked at, and one load shows a waiter a change.
  alignas(64) std::atomic<uint64_t> cursor_{0};
  // On the cache line of the cursor, which a claim has just fetched. Written by the thread that
  // starts or finishes a phase, read by threads that hold items of it.
  Job* job_ = nullptr;
  int index_ = 0;
  int items_ = 0;
  alignas(64) std::atomic<int> done_{0};
  alignas(64) std::atomic<bool> finished_{true};
  std::atomic<bool> stop_{false};

  // Threads that gave up spinning; nobody takes the lock while there are none.
  std::atomic<int> sleepers_{0};
  std::mutex sleep_;
  std::condition_variable wake_;
};

// Splits [0, items) over the pool as a job of one phase; function(first, last, thread).
template <typename Function>
void parallel_for(Pool& pool, int items, Function function) {
  class OnePhase final : public Job {
   public:
    OnePhase(int items, Function& function) : items_(items), function_(function) {}
    int phases() const override { return 1; }
    int items(int) const override { return items_; }
    int grain(int) const override { return 1; }
    void work(int, int first, int last, int thread) override { function_(first, last, thread); }

   private:
    int items_;
    Function& function_;
  };
  OnePhase job(items, function);
  pool.run(job);
}

}  // namespace slipstream
