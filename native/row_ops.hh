// Ops that compute a row from the same row only; a run of them is one phase of a step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "frame.hh"
#include "weights.hh"

namespace slipstream {

// One unit that a step runs or skips as a whole.
struct Node {
  std::string label;       // kernel path without the row class
  // The same in the last row class, where it differs. The class is nominal: the many-row kernel
  // takes over at rows > kMaxRowsAlone of the level (kernels/rows.hh).
  std::string many;
  std::vector<int> reads;  // buffers
  int writes = -1;         // buffer, or -1
  bool always = false;     // runs even if nothing reads it
  int output = -1;         // the output it delivers, or -1
  RowSet set = RowSet::all;
};

class RowOp {
 public:
  explicit RowOp(int node) : node(node) {}
  virtual ~RowOp() = default;
  virtual void run(const Frame& frame, int row) const = 0;
  const int node;
};

class EmbedPacked final : public RowOp {
 public:
  EmbedPacked(int node, int out, std::shared_ptr<const Matrix> matrix, float scale)
      : RowOp(node), out_(out), matrix_(std::move(matrix)), scale_(scale) {}
  void run(const Frame& frame, int row) const override;

 private:
  int out_;
  std::shared_ptr<const Matrix> matrix_;
  float scale_;
};

class EmbedSource final : public RowOp {
 public:
  EmbedSource(int node, int out, std::shared_ptr<const SourceRows> source, float scale)
      : RowOp(node), out_(out), source_(std::move(source)), scale_(scale) {}
  void run(const Frame& frame, int row) const override;

 private:
  int out_;
  std::shared_ptr<const SourceRows> source_;
  float scale_;
};

class CopyInput final : public RowOp {
 public:
  CopyInput(int node, int out, int input, int width)
      : RowOp(node), out_(out), input_(input), width_(width) {}
  void run(const Frame& frame, int row) const override;

 private:
  int out_, input_, width_;
};

class RmsNorm final : public RowOp {
 public:
  RmsNorm(int node, int out, int x, std::vector<float> weight, float epsilon, int groups, int width)
      : RowOp(node), out_(out), x_(x), weight_(std::move(weight)), epsilon_(epsilon),
        groups_(groups), width_(width) {}
  void run(const Frame& frame, int row) const override;

 private:
  int out_, x_;
  std::vector<float> weight_;  // [width] or empty
  float epsilon_;
  int groups_, width_;
};

class Prepare final : public RowOp {
 public:
  Prepare(int node, int out, int x, ActivationKind kind, int columns, RowSet set)
      : RowOp(node), out_(out), x_(x), kind_(kind), columns_(columns), set_(set) {}
  void run(const Frame& frame, int row) const override;

 private:
  int out_, x_;
  ActivationKind kind_;
  int columns_;
  RowSet set_;
};

struct RopeTable {
  bool neox;
  int rotary_width;
  std::vector<double> frequencies;
  float magnitude;
};

// out = cosines [pairs], then sines [pairs], of the row's position.
class FillRopeTable final : public RowOp {
 public:
  FillRopeTable(int node, int out, RopeTable table)
      : RowOp(node), out_(out), table_(std::move(table)) {}
  void run(const Frame& frame, int row) const override;

 private:
  int out_;
  RopeTable table_;
};

class Rope final : public RowOp {
 public:
  Rope(int node, int out, int x, int table, int heads, int head_dim, int rotary_width, bool neox)
      : RowOp(node), out_(out), x_(x), table_(table), heads_(heads), head_dim_(head_dim),
        rotary_width_(rotary_width), neox_(neox) {}
  void run(const Frame& frame, int row) const override;

 private:
  int out_, x_, table_, heads_, head_dim_, rotary_width_;
  bool neox_;
};

// Writes the row's key and value to its slot.
class StoreKeys final : public RowOp {
 public:
  StoreKeys(int node, int key, int value, int group, int layer)
      : RowOp(node), key_(key), value_(value), group_(group), layer_(layer) {}
  void run(const Frame& frame, int row) const override;

 private:
  int key_, value_, group_, layer_;
};

class Add final : public RowOp {
 public:
  Add(int node, int out, int a, int b, int width)
      : RowOp(node), out_(out), a_(a), b_(b), width_(width) {}
  void run(const Frame& frame, int row) const override;

 private:
  int out_, a_, b_, width_;
};

class Scale final : public RowOp {
 public:
  Scale(int node, int out, int x, float factor, int width)
      : RowOp(node), out_(out), x_(x), factor_(factor), width_(width) {}
  void run(const Frame& frame, int row) const override;

 private:
  int out_, x_;
  float factor_;
  int width_;
};

class Softcap final : public RowOp {
 public:
  Softcap(int node, int out, int x, float cap, int width)
      : RowOp(node), out_(out), x_(x), cap_(cap), width_(width) {}
  void run(const Frame& frame, int row) const override;

 private:
  int out_, x_;
  float cap_;
  int width_;
};

class Gated final : public RowOp {
 public:
  Gated(int node, int out, int gate, int up, Activation activation, int width)
      : RowOp(node), out_(out), gate_(gate), up_(up), activation_(activation), width_(width) {}
  void run(const Frame& frame, int row) const override;

 private:
  int out_, gate_, up_;
  Activation activation_;
  int width_;
};

// Row i of out = the row of x that the i-th logits were asked for.
class Gather final : public RowOp {
 public:
  Gather(int node, int out, int x, int width) : RowOp(node), out_(out), x_(x), width_(width) {}
  void run(const Frame& frame, int row) const override;

 private:
  int out_, x_, width_;
};

class Deliver final : public RowOp {
 public:
  Deliver(int node, int x, int output, int width)
      : RowOp(node), x_(x), output_(output), width_(width) {}
  void run(const Frame& frame, int row) const override;

 private:
  int x_, output_, width_;
};

}  // namespace slipstream
