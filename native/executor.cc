#include "executor.hh"

#include <algorithm>
#include <new>
#include <numeric>
#include <stdexcept>

namespace slipstream {

const std::array<const char*, kRowClasses> kRowClassNames = {"rows_1", "rows_2_8", "rows_9_16",
                                                             "rows_17"};

namespace {

constexpr std::align_val_t kAlignment{64};

constexpr int kLeastCapacity = 32;  // rows that the workspace holds at least

int row_class(int rows) { return rows == 1 ? 0 : rows <= 8 ? 1 : rows <= 16 ? 2 : 3; }

int blocks(int rows) { return (rows + kBlockRows - 1) / kBlockRows; }

int capacity_for(int rows) {
  int capacity = kLeastCapacity;
  while (capacity < rows) capacity *= 2;
  return capacity;
}

}  // namespace

class Executor::StepJob final : public Job {
 public:
  StepJob(const Program& program, const Frame& frame, Profile* profile)
      : program_(program), frame_(frame), profile_(profile) {}
  int phases() const override { return static_cast<int>(program_.phases.size()); }
  int items(int phase) const override {
    if (profile_ != nullptr) profile_->begin(phase);
    return program_.phases[phase]->items(frame_);
  }
  int grain(int phase) const override { return program_.phases[phase]->grain(frame_); }
  void work(int phase, int first, int last, int thread) override {
    program_.phases[phase]->run(frame_, first, last, thread);
  }

 private:
  const Program& program_;
  const Frame& frame_;
  Profile* profile_;
};

Executor::Executor(std::shared_ptr<Pool> pool, Program program)
    : pool_(std::move(pool)), program_(std::move(program)) {
  frame_.level = program_.level;
  frame_.groups = program_.groups;
  frame_.buffers.resize(program_.buffers.size());
  frame_.needed.resize(program_.nodes.size());
  frame_.outputs.resize(program_.outputs.size());
  frame_.scratch.resize(static_cast<size_t>(pool_->threads()));
  frame_.rows.tables.reserve(program_.groups.size());
  frame_.spans.resize(program_.groups.size());
  for (std::vector<Span>& spans : frame_.spans) spans.reserve(kBatchRows);
  frame_.runs.resize(program_.groups.size());
  int kv_heads = 1;
  for (const LayerGroup& group : program_.groups) kv_heads = std::max(kv_heads, group.kv_heads);
  const size_t counters = static_cast<size_t>(kBatchRows) * static_cast<size_t>(kv_heads);
  frame_.runs_done.reset(new std::atomic<int>[counters]());
  homes_.resize(program_.buffers.size());
  read_.resize(program_.buffers.size());
  counts_.resize(program_.nodes.size());
  place_buffers();
}

Executor::~Executor() {
  if (workspace_ != nullptr) ::operator delete(workspace_, kAlignment);
  if (frame_.parts != nullptr) ::operator delete(frame_.parts, kAlignment);
}

// Greedy in order of first use: a buffer takes the smallest free slot of its kind that holds it,
// else the largest free one, which grows.
void Executor::place_buffers() {
  const std::vector<Program::Extent>& extents = program_.buffers;
  std::vector<int> order(extents.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return extents[a].first_phase < extents[b].first_phase;
  });
  std::vector<int> busy_until;
  slots_.assign(extents.size(), -1);
  for (const int buffer : order) {
    const Program::Extent& extent = extents[buffer];
    if (extent.first_phase < 0) continue;
    int best = -1;
    for (int slot = 0; slot < static_cast<int>(slot_bytes_.size()); ++slot) {
      const bool free = busy_until[slot] < extent.first_phase && slot_sets_[slot] == extent.set &&
                        slot_blocks_[slot] == extent.blocks;
      if (!free) continue;
      const bool fits = slot_bytes_[slot] >= extent.row_bytes;
      const bool best_fits = best >= 0 && slot_bytes_[best] >= extent.row_bytes;
      const bool better = best < 0 || (fits && !best_fits) ||
                          (fits == best_fits && (slot_bytes_[slot] < slot_bytes_[best]) == fits);
      if (better) best = slot;
    }
    if (best < 0) {
      best = static_cast<int>(slot_bytes_.size());
      slot_bytes_.push_back(0);
      slot_sets_.push_back(extent.set);
      slot_blocks_.push_back(extent.blocks);
      busy_until.push_back(-1);
    }
    slots_[buffer] = best;
    slot_bytes_[best] = std::max(slot_bytes_[best], extent.row_bytes);
    busy_until[best] = extent.last_phase;
  }
}

void Executor::reserve(int rows, int logits) {
  if (workspace_ != nullptr && rows <= capacity_[0] && logits <= capacity_[1]) return;
  const std::array<int, 2> capacity{std::max(capacity_[0], capacity_for(rows)),
                                    std::max(capacity_[1], capacity_for(logits))};
  reserve_parts(capacity[0]);
  std::vector<size_t> offsets;
  size_t bytes = 0;
  for (size_t slot = 0; slot < slot_bytes_.size(); ++slot) {
    const int held = capacity[static_cast<int>(slot_sets_[slot])];
    offsets.push_back(bytes);
    bytes += slot_bytes_[slot] * static_cast<size_t>(slot_blocks_[slot] ? blocks(held) : held);
  }
  const size_t scratch = bytes;
  bytes += program_.scratch_bytes * frame_.scratch.size();
  auto* made = static_cast<uint8_t*>(::operator new(bytes, kAlignment));
  if (workspace_ != nullptr) ::operator delete(workspace_, kAlignment);
  workspace_ = made;
  workspace_bytes_ = bytes;
  capacity_ = capacity;
  for (size_t thread = 0; thread < frame_.scratch.size(); ++thread) {
    frame_.scratch[thread] = workspace_ + scratch + thread * program_.scratch_bytes;
  }
  for (size_t buffer = 0; buffer < slots_.size(); ++buffer) {
    if (slots_[buffer] < 0) continue;
    homes_[buffer] = workspace_ + offsets[slots_[buffer]];
    frame_.buffers[buffer] = {homes_[buffer], program_.buffers[buffer].row_bytes};
  }
}

void Executor::run(const Rows& step) {
  validate(step);
  const int most = std::min(step.count, kBatchRows);
  reserve(std::max(most, 1), std::max(std::min(step.logits, most), 1));
  if (profile_ != nullptr) profile_->start_run();
  int next_logit = 0;
  for (int first = 0; first < step.count; first += kBatchRows) {
    const int count = std::min(kBatchRows, step.count - first);
    const int first_logit = next_logit;
    while (next_logit < step.logits && step.logit_rows[next_logit] < first + count) ++next_logit;
    begin_batch(step, first, count, first_logit, next_logit - first_logit);
    StepJob job(program_, frame_, profile_.get());
    if (profile_ != nullptr) profile_->start_batch();
    pool_->run(job);
    if (profile_ != nullptr) profile_->end_batch();
    count_nodes();
  }
}

void Executor::begin_batch(const Rows& step, int first, int count, int first_logit, int logits) {
  Rows& rows = frame_.rows;
  rows.count = count;
  rows.tokens = step.tokens == nullptr ? nullptr : step.tokens + first;
  rows.positions = step.positions + first;
  rows.slots = step.slots + first;
  rows.table = step.table + first;
  rows.identity = step.identity + first;
  rows.tail_start = step.tail_start + first;
  rows.tail_count = step.tail_count + first;
  rows.tail = step.tail;
  rows.tail_size = step.tail_size;
  rows.logit_rows = step.logit_rows + first_logit;
  rows.logits = logits;
  rows.tables = step.tables;
  rows.vectors = step.vectors;
  frame_.first_row = first;
  cut_spans();
  redirect_outputs(step, first, first_logit);
  mark_needed();
}

// A value that an output delivers is computed in the caller's array.
void Executor::redirect_outputs(const Rows& step, int first, int first_logit) {
  for (size_t output = 0; output < frame_.outputs.size(); ++output) {
    const int value = program_.output_values[output];
    const Program::Extent& extent = program_.buffers[value];
    const size_t row = static_cast<size_t>(extent.set == RowSet::all ? first : first_logit);
    const bool wanted = step.outputs[output] != nullptr && frame_.count(extent.set) > 0;
    frame_.outputs[output] = wanted ? step.outputs[output] + row * extent.width : nullptr;
  }
  for (size_t output = 0; output < frame_.outputs.size(); ++output) {
    const int value = program_.output_values[output];
    const Program::Extent& extent = program_.buffers[value];
    if (extent.output != static_cast<int>(output)) continue;
    Buffer& buffer = frame_.buffers[value];
    if (frame_.outputs[output] != nullptr) {
      buffer = {reinterpret_cast<uint8_t*>(frame_.outputs[output]), sizeof(float) * extent.width};
    } else {
      buffer = {homes_[value], extent.row_bytes};
    }
  }
}

// Backwards from what is delivered and what the memory must hold.
void Executor::mark_needed() {
  std::fill(read_.begin(), read_.end(), uint8_t{0});
  for (size_t index = program_.nodes.size(); index-- > 0;) {
    const Node& node = program_.nodes[index];
    const bool delivers = node.output >= 0 && frame_.outputs[node.output] != nullptr;
    const bool needed = node.always || delivers || (node.writes >= 0 && read_[node.writes] != 0);
    frame_.needed[index] = needed;
    if (!needed) continue;
    for (const int read : node.reads) read_[read] = 1;
  }
}

void Executor::profile(bool on) {
  profile_ = on ? std::make_unique<Profile>(program_.phases.size()) : nullptr;
}

void Executor::count_nodes() {
  for (size_t index = 0; index < counts_.size(); ++index) {
    const int rows = frame_.count(program_.nodes[index].set);
    if (frame_.needed[index] && rows > 0) ++counts_[index][row_class(rows)];
  }
}

std::map<std::string, int64_t> Executor::counts() const {
  std::map<std::string, int64_t> sums;
  for (size_t index = 0; index < counts_.size(); ++index) {
    for (int kind = 0; kind < kRowClasses; ++kind) {
      const int64_t count = counts_[index][kind];
      const Node& node = program_.nodes[index];
      const bool many = kind == kRowClasses - 1 && !node.many.empty();
      if (count > 0) sums[(many ? node.many : node.label) + "/" + kRowClassNames[kind]] += count;
    }
  }
  return sums;
}

}  // namespace slipstream
