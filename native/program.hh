// A program: the ops of a graph in execution order, built through one method per op kind.
//
// Methods raise std::invalid_argument for anything that does not fit: an unknown value, a value
// used before it is written, a width that disagrees, another row set.
#pragma once

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "phases.hh"

namespace slipstream {

[[noreturn]] inline void refuse(const std::string& reason) { throw std::invalid_argument(reason); }

// Rows of buffers start on cache lines.
inline size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// One linear of a group.
struct Member {
  int out;
  std::shared_ptr<const Matrix> weight;
  std::vector<float> bias;
  int residual;  // value, or -1
};

class Program {
 public:
  Program(const Level& level, Precision precision) : level(&level), precision(precision) {}
  Program(Program&&) = default;
  Program(const Program&) = delete;

  int value(int width, RowSet set);
  void add_group(LayerGroup group);

  void embed_packed(int out, std::shared_ptr<const Matrix> matrix, float scale);
  void embed_source(int out, std::shared_ptr<const SourceRows> source, float scale);
  void input(int out, const std::string& name);
  void rms_norm(int out, int x, std::vector<float> weight, float epsilon, int group_width);
  void linear_group(int x, const std::vector<Member>& members);
  void gated_linear(int out, int x, std::shared_ptr<const Matrix> gate,
                    std::shared_ptr<const Matrix> up, Activation activation);
  void rope(int out, int x, int heads, int head_dim, const RopeTable& table);
  void attention(int out, int query, int key, int value, const AttentionPhase::Shape& shape);
  void add(int out, int a, int b);
  void scale(int out, int x, float factor);
  void softcap(int out, int x, float cap);
  void gated(int out, int gate, int up, Activation activation);
  void gather(int out, int x);
  void output(const std::string& name, int x);

  // What a buffer holds and while which phases it is alive.
  struct Extent {
    size_t row_bytes;    // per row; for prepared activations per block of kBlockRows rows
    bool blocks;         // prepared activations
    RowSet set;
    int width;           // floats, 0 for prepared activations
    bool is_value;
    bool written = false;
    int first_phase = -1;
    int last_phase = -1;
    int output = -1;     // the first output that delivers it
  };

  // Floats that the results of one split of `rows` rows take, over all key/value heads.
  size_t part_floats(size_t group, int rows) const {
    return attention_part_floats(rows, group_heads[group], groups[group].head_dim) *
           static_cast<size_t>(groups[group].kv_heads);
  }

  const Level* level;
  Precision precision;  // of every product, whatever the row count
  std::vector<Extent> buffers;
  std::vector<Node> nodes;
  std::vector<std::unique_ptr<Phase>> phases;
  std::vector<LayerGroup> groups;
  std::vector<int> group_windows;  // per group: the widest window of its layers, 0 = unlimited
  std::vector<int> group_heads;    // per group: most query heads of one key/value head
  std::vector<std::string> inputs;
  std::vector<int> input_widths;
  std::vector<std::string> outputs;
  std::vector<int> output_values;
  int vocabulary = 0;  // token ids are below it; 0 = the program starts from vectors
  size_t scratch_bytes = ProductPhase::kScratchBytes;

 private:
  int check_value(int value, const char* what) const;
  int check_read(int value, int width, const char* what) const;
  static int width_of(int heads, int head_dim);
  int check_write(int value, int width, RowSet set);
  int node(std::string label, std::vector<int> reads, int writes, RowSet set);
  int product_node(const Matrix& weight, std::vector<int> reads, int writes, RowSet set);
  int buffer(size_t row_bytes, bool blocks, RowSet set, int width);
  void touch(int buffer, int phase);
  RowPhase& row_phase(RowSet set, bool fresh);
  template <typename Op, typename... Arguments>
  void row_op(int node, bool fresh, Arguments&&... arguments);
  int prepared(int x, const Matrix& weight);
  Product product(const Member& member, int x);
  void place_products(RowSet set, std::vector<Product> products);
  void begin_tokens(int rows);
  std::string path(const std::string& kind) const { return kind + "/" + level->name; }

  std::map<std::pair<int, int>, int> prepared_;  // (value, activation kind) -> buffer
  std::vector<std::pair<RopeTable, int>> tables_;
  RowPhase* open_ = nullptr;
};

template <typename Op, typename... Arguments>
void Program::row_op(int node, bool fresh, Arguments&&... arguments) {
  RowPhase& phase = row_phase(nodes[node].set, fresh);
  phase.ops.push_back(std::make_unique<Op>(node, std::forward<Arguments>(arguments)...));
  const int index = static_cast<int>(phases.size()) - 1;
  for (const int read : nodes[node].reads) touch(read, index);
  if (nodes[node].writes >= 0) touch(nodes[node].writes, index);
}

}  // namespace slipstream
