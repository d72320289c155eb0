// What the pool promises: every item of a phase once, phases in order, callers one after another.
//
//   pool_check [jobs]      exit status 0 = kept; also built with ThreadSanitizer
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "pool.hh"

namespace {

using slipstream::Job;
using slipstream::Pool;

std::atomic<int> failures{0};

void expect(bool kept, const char* promise) {
  if (!kept && failures.fetch_add(1) < 10) std::printf("broken: %s\n", promise);
}

// Phases of random sizes, empty ones among them; plain counters, so that a race shows.
class Recorder final : public Job {
 public:
  Recorder(unsigned seed, int phases, int threads) : threads_(threads) {
    std::mt19937 random(seed);
    for (int phase = 0; phase < phases; ++phase) {
      const int kind = static_cast<int>(random() % 5);
      const int items = kind == 0 ? 0 : kind == 1 ? 1 : static_cast<int>(random() % 600);
      done_.emplace_back(static_cast<size_t>(items), 0);
      grains_.push_back(static_cast<int>(random() % 300));
    }
  }
  int phases() const override { return static_cast<int>(done_.size()); }
  int items(int phase) const override { return static_cast<int>(done_[phase].size()); }
  int grain(int phase) const override { return grains_[phase]; }
  void work(int phase, int first, int last, int thread) override {
    expect(0 <= first && first < last && last <= items(phase), "a chunk lies inside its phase");
    expect(0 <= thread && thread < threads_, "a thread has a number below threads()");
    if (phase > 0) {
      for (const int times : done_[phase - 1]) expect(times == 1, "earlier phases are finished");
    }
    for (int item = first; item < last; ++item) ++done_[phase][item];
    // Now and then longer than a waiter spins, so that it sleeps.
    if (first % 97 == 0) std::this_thread::sleep_for(std::chrono::microseconds(60));
  }
  void check() const {
    for (const std::vector<int>& phase : done_) {
      for (const int times : phase) expect(times == 1, "every item is done once");
    }
  }

 private:
  int threads_;
  std::vector<std::vector<int>> done_;
  std::vector<int> grains_;
};

void run_jobs(Pool& pool, unsigned seed, int jobs) {
  for (int job = 0; job < jobs; ++job) {
    Recorder recorder(seed + static_cast<unsigned>(job), job % 7, pool.threads());
    pool.run(recorder);
    recorder.check();
    // Long enough for the workers to fall asleep between jobs.
    if (job % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool refused(int threads) {
  try {
    Pool pool(threads);
  } catch (const std::invalid_argument&) {
    return true;
  }
  return false;
}

}  // namespace

int main(int count, char** arguments) {
  const int jobs = count > 1 ? std::atoi(arguments[1]) : 100;
  for (const int threads : {1, 2, 3, 5, 8}) {
    Pool pool(threads);
    std::thread other([&] { run_jobs(pool, 1000, jobs); });
    run_jobs(pool, 1, jobs);
    other.join();
  }
  for (int round = 0; round < jobs; ++round) Pool unused(3);
  expect(refused(0) && refused(-1) && refused(Pool::kMaxThreads + 1), "bad counts are refused");
  std::printf("pool: %d failures\n", failures.load());
  return failures.load() == 0 ? 0 : 1;
}
