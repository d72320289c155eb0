// What the pool itself costs: one change of phase, and the imbalance at the end of short phases.
//
//   c++ -std=c++17 -O3 -pthread -Inative benchmarks/pool_micro.cc native/pool.cc -o pool_micro
//   ./pool_micro [threads] [phases]
//
// `change`: phases of one item per thread, in which every thread has to take part: each item waits
// until all are held. `short`: phases of 64 items of about 0.35 us each (a phase of a small model's
// step), against its share of the time that one thread takes.
// Ends with one JSON line; times are the best of 60 samples, each far shorter than a time slice.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "pool.hh"

namespace {

using slipstream::Job;
using slipstream::Pool;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Bound by latency, so that a sibling hyper-thread does not slow it.
void spin(int loops) {
  uint64_t value = 3;
  for (int i = 0; i < loops; ++i) {
    value *= value;
    asm volatile("" : "+r"(value));
  }
}

// Each item returns when all items of its phase are held.
class Meetings final : public Job {
 public:
  Meetings(int phases, int threads) : phases_(phases), threads_(threads) {}
  int phases() const override { return phases_; }
  int items(int) const override { return threads_; }
  int grain(int) const override { return 1; }
  void work(int, int, int, int) override {
    arrived_.fetch_add(1);
    while (arrived_.load(std::memory_order_relaxed) < threads_) {
    }
    if (left_.fetch_add(1) + 1 == threads_) {
      left_.store(0);
      arrived_.store(0);
    }
  }

 private:
  int phases_, threads_;
  std::atomic<int> arrived_{0};
  std::atomic<int> left_{0};
};

class Phases final : public Job {
 public:
  Phases(int phases, int items, int loops) : phases_(phases), items_(items), loops_(loops) {}
  int phases() const override { return phases_; }
  int items(int) const override { return items_; }
  int grain(int) const override { return 1; }
  void work(int, int first, int last, int) override {
    for (int item = first; item < last; ++item) spin(loops_);
  }

 private:
  int phases_, items_, loops_;
};

double best(Pool& pool, Job& job) {
  double shortest = 1e9;
  for (int sample = 0; sample < 60; ++sample) {
    const double start = seconds();
    pool.run(job);
    shortest = std::min(shortest, seconds() - start);
  }
  return shortest;
}

}  // namespace

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 2;
  const int phases = count > 2 ? std::atoi(arguments[2]) : 500;
  constexpr int kLoops = 400;
  constexpr int kItems = 64;
  const int short_phases = std::max(phases / 20, 1);
  Pool pool(threads);
  Pool alone(1);
  Meetings meetings(phases, threads);
  Phases work(short_phases, kItems, kLoops);
  const double change = best(pool, meetings) / phases * 1e9;
  const double serial = best(alone, work) / short_phases * 1e9;
  const double parallel = best(pool, work) / short_phases * 1e9;
  const double over = parallel - serial / threads;
  std::printf("change of phase: %.0f ns with %d threads (bar 1000)\n", change, threads);
  std::printf("short phase: %.0f ns, %.0f ns over its share of %.0f ns\n", parallel, over, serial);
  std::printf("{\"threads\": %d, \"change_ns\": %.1f, \"short_ns\": %.1f, \"over_ns\": %.1f}\n", threads,
              change, parallel, over);
}
