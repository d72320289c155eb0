// Counts what a step allocates: nothing, at any depth, once a step of as many rows has run.
//
//   step_allocations [violate]    exit status 0 = no allocation; `violate` allocates one on purpose
//
// A model of two layers on the portable level; every call of malloc and its kin on any thread
// counts.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "executor.hh"

namespace {

std::atomic<bool> counting{false};
std::atomic<long> allocations{0};

void count() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1);
}

}  // namespace

// The allocator of glibc under its own names; operator new calls malloc or aligned_alloc.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t bytes) {
  count();
  return __libc_malloc(bytes);
}
void* calloc(size_t items, size_t bytes) {
  count();
  return __libc_calloc(items, bytes);
}
void* realloc(void* old, size_t bytes) {
  count();
  return __libc_realloc(old, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  count();
  *out = __libc_memalign(alignment, bytes);
  return *out == nullptr ? 12 : 0;
}
}

namespace slipstream {

// Takes the place of isa/levels.cc, so that only the portable kernels are built.
const std::vector<Level>& levels() {
  static const std::vector<Level> only{
      {"portable", &matmul_kernels_portable(), &vector_kernels_portable()}};
  return only;
}

const Level& level(const std::string&) { return levels().front(); }

}  // namespace slipstream

namespace {

using namespace slipstream;

constexpr int kWidth = 64, kHeads = 2, kHeadDim = 32, kInner = 96, kVocabulary = 80;
constexpr int kLayers = 2, kPages = 64, kMostRows = 33, kLongStep = 300;
constexpr int kPositions = kPages * kPagePositions;

// The model, and the arrays that a step reads and writes.
class Model {
 public:
  explicit Model(int threads)
      : pool_(std::make_shared<Pool>(threads)),
        arena_(std::make_shared<Arena>(1 << 20)),
        keys_(kLayers * kPages * kPagePositions * kHeadDim),
        values_(keys_.size()),
        logits_(static_cast<size_t>(kLongStep) * kVocabulary),
        hidden_(static_cast<size_t>(kLongStep) * kWidth),
        pages_(kPages),
        zeros_(kLongStep) {
    for (int page = 0; page < kPages; ++page) pages_[page] = page;
    for (int i = 0; i < kPositions; ++i) {
      counts_.push_back(i + 1);
      numbers_.push_back(i);
    }
    for (int i = 0; i < kLongStep; ++i) {
      tokens_.push_back(i % kVocabulary);
      ones_.push_back(1);
    }
    executor_ = std::make_unique<Executor>(pool_, build());
    rows_.tables.push_back({pages_.data(), 1, kPages});
  }

  // A chain from position `depth`. With `all`: every output, and each row reads its own key through
  // its tail, as a draft row does; else the last row's logits only.
  void step(int rows, bool all, int depth = 0) {
    rows_.count = rows;
    rows_.tokens = tokens_.data();
    rows_.positions = rows_.slots = numbers_.data() + depth;
    rows_.table = zeros_.data();
    rows_.identity = (all ? numbers_.data() : counts_.data()) + depth;
    rows_.tail_start = all ? numbers_.data() : zeros_.data();
    rows_.tail_count = all ? ones_.data() : zeros_.data();
    rows_.tail = numbers_.data() + depth;
    rows_.tail_size = all ? rows : 0;
    rows_.logit_rows = all ? numbers_.data() : numbers_.data() + rows - 1;
    rows_.logits = all ? rows : 1;
    rows_.outputs = outputs_[all ? 1 : 0];
    executor_->run(rows_);
  }

  void point_outputs() {
    outputs_[0] = {logits_.data(), nullptr};
    outputs_[1] = {logits_.data(), hidden_.data()};
    rows_.outputs.reserve(2);
  }

 private:
  std::shared_ptr<const Matrix> matrix(WeightType type, int rows, int columns) {
    sources_.emplace_back(source_row_bytes(type, columns) * static_cast<size_t>(rows), uint8_t{1});
    const SourceRows source{type, rows, columns, source_row_bytes(type, columns),
                            sources_.back().data()};
    return pack_matrix(*pool_, level("portable"), arena_, source, {});
  }

  Program build() {
    Program program(level("portable"), Precision::a8);
    program.add_group({keys_.data(), values_.data(), kLayers, kPages, 1, kHeadDim});
    int x = program.value(kWidth, RowSet::all);
    program.embed_packed(x, matrix(WeightType::q8_0, kVocabulary, kWidth), 1.0f);
    for (int layer = 0; layer < kLayers; ++layer) x = add_layer(program, layer, x);
    const int last = program.value(kWidth, RowSet::logits);
    program.gather(last, x);
    const int logits = program.value(kVocabulary, RowSet::logits);
    program.linear_group(last, {{logits, matrix(WeightType::f32, kVocabulary, kWidth), {}, -1}});
    program.output("logits", logits);
    program.output("final", x);
    return program;
  }

  int add_layer(Program& program, int layer, int x) {
    const RopeTable table{true, kHeadDim, std::vector<double>(kHeadDim / 2, 0.5), 1.0f};
    const auto value = [&](int width) { return program.value(width, RowSet::all); };
    const int normed = value(kWidth), query = value(kWidth), key = value(kHeadDim);
    const int held = value(kHeadDim), turned = value(kWidth), turned_key = value(kHeadDim);
    program.rms_norm(normed, x, std::vector<float>(kWidth, 1.0f), 1e-5f, kWidth);
    const std::vector<float> bias(kWidth, 0.5f);
    program.linear_group(normed, {{query, matrix(WeightType::q8_0, kWidth, kWidth), bias, -1},
                                  {key, matrix(WeightType::q8_0, kHeadDim, kWidth), {}, -1},
                                  {held, matrix(WeightType::f16, kHeadDim, kWidth), {}, -1}});
    program.rope(turned, query, kHeads, kHeadDim, table);
    program.rope(turned_key, key, 1, kHeadDim, table);
    const int mixed = value(kWidth), attended = value(kWidth);
    program.attention(mixed, turned, turned_key, held,
                      {0, layer, kHeads, 1, kHeadDim, 0.125f, layer == 0 ? 0 : 16});
    program.linear_group(mixed, {{attended, matrix(WeightType::q4_0, kWidth, kWidth), {}, x}});
    const int inner = value(kInner), out = value(kWidth);
    program.gated_linear(inner, attended, matrix(WeightType::q8_0, kInner, kWidth),
                         matrix(WeightType::q8_0, kInner, kWidth), Activation::silu);
    program.linear_group(inner, {{out, matrix(WeightType::q5_1, kWidth, kInner), {}, attended}});
    return out;
  }

  std::shared_ptr<Pool> pool_;
  std::shared_ptr<Arena> arena_;
  std::vector<std::vector<uint8_t>> sources_;
  std::vector<uint16_t> keys_, values_;
  std::vector<float> logits_, hidden_;
  std::vector<int32_t> pages_, zeros_, counts_, numbers_, tokens_, ones_;
  std::vector<float*> outputs_[2];
  Rows rows_;
  std::unique_ptr<Executor> executor_;
};

void all_steps(Model& model) {
  for (int rows = 1; rows <= kMostRows; ++rows) {
    model.step(rows, true);
    model.step(rows, false);
  }
  model.step(kLongStep, true);
}

// As many rows as before, at depths up to the last position that the memory holds.
void deep_steps(Model& model) {
  for (int depth = kPagePositions; depth < kPositions; depth *= 2) {
    for (const int rows : {1, 2, 7, 16, kMostRows}) model.step(rows, rows % 2 == 0, depth);
  }
  for (const int rows : {1, kMostRows}) model.step(rows, true, kPositions - rows);
  model.step(kLongStep, true, kPositions - kLongStep);
}

std::vector<int> sink;  // outlives the count, so that no compiler leaves its memory out

long allocations_of_steps(int threads, bool violate) {
  sink = std::vector<int>();
  Model model(threads);
  model.point_outputs();
  all_steps(model);
  allocations.store(0);
  counting.store(true);
  all_steps(model);
  deep_steps(model);
  if (violate) sink.assign(1000, threads);
  counting.store(false);
  return allocations.load();
}

}  // namespace

int main(int count, char** arguments) {
  const bool violate = count > 1 && std::strcmp(arguments[1], "violate") == 0;
  long found = 0;
  for (const int threads : {1, 2, 3}) {
    const long made = allocations_of_steps(threads, violate);
    std::printf("%d threads: %ld allocations\n", threads, made);
    found += made;
  }
  return found == 0 ? 0 : 1;
}
