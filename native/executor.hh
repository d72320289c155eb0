// Runs a program: places its buffers, then one job per sub-batch of rows, without allocating.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pool.hh"
#include "profile.hh"
#include "program.hh"

namespace slipstream {

// Rows per call in which a kernel ran: 1, 2-8, 9-16, 17 and more.
constexpr int kRowClasses = 4;
extern const std::array<const char*, kRowClasses> kRowClassNames;

class Executor {
 public:
  Executor(std::shared_ptr<Pool> pool, Program program);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  const Program& program() const { return program_; }

  // Computes all rows. Raises std::invalid_argument, before anything is written, when a row does
  // not fit the program or its memory; std::bad_alloc when the workspace does not fit.
  void run(const Rows& step);

  // Kernel path with row class -> sub-batches in which it ran.
  std::map<std::string, int64_t> counts() const;
  size_t workspace_bytes() const { return workspace_bytes_ + sizeof(float) * parts_floats_; }

  // Times every phase from now on, or stops doing so.
  void profile(bool on);
  const Profile* profile() const { return profile_.get(); }  // nullptr when off

 private:
  class StepJob;

  void place_buffers();
  void validate(const Rows& step) const;
  void validate_keys(const Rows& step) const;
  void validate_pages(const Rows& step, size_t group) const;
  void reserve(int rows, int logits);
  void begin_batch(const Rows& step, int first, int count, int first_logit, int logits);
  void cut_spans();
  void cut_rows(size_t group, int start, int end, int most);
  void cut_runs(size_t group);
  size_t most_part_floats(int rows) const;
  void reserve_parts(int rows);
  void redirect_outputs(const Rows& step, int first, int first_logit);
  void mark_needed();
  void count_nodes();

  std::unique_ptr<Profile> profile_;
  std::shared_ptr<Pool> pool_;
  Program program_;
  Frame frame_;
  std::vector<int> slots_;                    // buffer -> slot
  std::vector<size_t> slot_bytes_;            // per row, or per block of rows
  std::vector<RowSet> slot_sets_;
  std::vector<bool> slot_blocks_;
  std::vector<uint8_t*> homes_;               // buffer -> its place in the workspace
  std::vector<uint8_t> read_;                 // buffer -> whether a needed node reads it
  std::vector<std::array<int64_t, kRowClasses>> counts_;  // per node
  std::array<int, 2> capacity_{0, 0};         // rows per row set
  size_t parts_floats_ = 0;                   // room in Frame::parts
  uint8_t* workspace_ = nullptr;
  size_t workspace_bytes_ = 0;
};

}  // namespace slipstream
