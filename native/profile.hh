// Times of a step's phases, measured only when a benchmark asks for them.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "program.hh"

namespace slipstream {

// Wall time of each phase of the last run: from the end of the phase before it to its own end, on
// all threads, so the times add up to the run. Summed over the sub-batches of a run.
class Profile {
 public:
  explicit Profile(size_t phases) : seconds_(phases) {}

  void start_run() { std::fill(seconds_.begin(), seconds_.end(), 0.0); }
  // Called by whichever thread starts a phase; the pool orders these calls.
  void begin(int phase) {
    close();
    current_ = phase;
  }
  void start_batch() {
    current_ = -1;
    last_ = Clock::now();
  }
  void end_batch() { close(); }

  const std::vector<double>& seconds() const { return seconds_; }

 private:
  using Clock = std::chrono::steady_clock;

  void close() {
    const Clock::time_point now = Clock::now();
    if (current_ >= 0) seconds_[current_] += std::chrono::duration<double>(now - last_).count();
    last_ = now;
    current_ = -1;
  }

  std::vector<double> seconds_;
  Clock::time_point last_{};
  int current_ = -1;
};

// What a phase does.
struct PhaseDescription {
  std::string kind;                             // "product", "attention", "row" or "other"
  std::vector<std::string> ops;                 // kernel paths, without the row class
  std::vector<std::shared_ptr<const Matrix>> matrices;
};

std::vector<PhaseDescription> describe_phases(const Program& program);

}  // namespace slipstream
