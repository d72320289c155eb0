// The phases of a step: runs of row ops, groups of matrix products, attention.
#pragma once

#include <memory>
#include <vector>

#include "frame.hh"
#include "row_ops.hh"
#include "weights.hh"

namespace slipstream {

class Phase {
 public:
  virtual ~Phase() = default;
  virtual int items(const Frame& frame) const = 0;
  virtual int grain(const Frame& frame) const = 0;
  virtual void run(const Frame& frame, int first, int last, int thread) const = 0;
};

// Item = row.
class RowPhase final : public Phase {
 public:
  explicit RowPhase(RowSet set) : set(set) {}
  int items(const Frame& frame) const override;
  int grain(const Frame&) const override { return 1; }
  void run(const Frame& frame, int first, int last, int thread) const override;

  const RowSet set;
  std::vector<std::unique_ptr<RowOp>> ops;
};

// One product of a phase: out = weight @ x (+ bias) (+ residual), or, with `up`,
// out = activation(weight @ x) * (up @ x).
struct Product {
  int node;
  int out;
  std::shared_ptr<const Matrix> weight;
  int activations;  // buffer of the prepared rows that `weight` reads
  std::vector<float> bias;
  int residual = -1;
  std::shared_ptr<const Matrix> up = nullptr;
  int up_activations = -1;
  int up_node = -1;  // counts the second product; needed when `node` is
  Activation activation = Activation::silu;
};

// Item = strip of 16 output elements, counted over all products.
class ProductPhase final : public Phase {
 public:
  ProductPhase(RowSet set, Precision precision, std::vector<Product> products)
      : set_(set), precision_(precision), products_(std::move(products)) {}
  int items(const Frame& frame) const override;
  int grain(const Frame& frame) const override;
  void run(const Frame& frame, int first, int last, int thread) const override;
  const std::vector<Product>& products() const { return products_; }

  // Bytes of per-thread scratch: tiles of one block of rows.
  static constexpr size_t kScratchBytes = 3 * sizeof(float) * kBlockRows * kStripRows;

 private:
  void strip(const Frame& frame, const Product& product, int strip, float* tile) const;

  RowSet set_;
  Precision precision_;
  std::vector<Product> products_;
};

// Item = (span of rows, key/value head, run of splits); who ends the last run of a span's head
// merges the results of all its splits.
class AttentionPhase final : public Phase {
 public:
  struct Shape {
    int group, layer, heads, kv_heads, head_dim;
    float scale;
    int window;  // 0 = none
  };

  AttentionPhase(int node, int out, int query, Shape shape)
      : node_(node), out_(out), query_(query), shape_(shape) {}
  int items(const Frame& frame) const override;
  int grain(const Frame&) const override { return 1; }
  void run(const Frame& frame, int first, int last, int thread) const override;

 private:
  void attend(const Frame& frame, int span, int head, int run, float* scratch) const;
  AttentionTask task(const Frame& frame, int row, int head, float* scratch) const;

  int node_, out_, query_;
  Shape shape_;
};

// The first logical key that a row at `position` sees.
inline int first_key(int position, int window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

}  // namespace slipstream
