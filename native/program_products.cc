// The matrix products of a program and the prepared activations they share.
#include "program.hh"

namespace slipstream {
namespace {

const char* kind_name(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::float32:
      return "float32";
    case ActivationKind::int8_per_32:
      return "int8_per_32";
    case ActivationKind::int8_per_256:
      return "int8_per_256";
  }
  return "unknown";
}

}  // namespace

int Program::prepared(int x, const Matrix& weight) {
  check_read(x, weight.columns, "x");
  const ActivationKind kind = weight_traits(weight.type)->activation;
  const auto key = std::make_pair(x, static_cast<int>(kind));
  const auto found = prepared_.find(key);
  if (found != prepared_.end()) return found->second;
  const RowSet set = buffers[x].set;
  const size_t bytes = aligned(activation_bytes(kind, kBlockRows, weight.columns));
  const int made = buffer(bytes, true, set, 0);
  const std::string label = std::string("prepare/") + kind_name(kind);
  row_op<Prepare>(node(path(label), {x}, made, set), false, made, x, kind, weight.columns, set);
  prepared_.emplace(key, made);
  return made;
}

// Types without blocks have one kernel at every row count.
int Program::product_node(WeightType type, std::vector<int> reads, int writes, RowSet set) {
  const WeightTraits& traits = *weight_traits(type);
  const int made = node(path(std::string("matmul/") + traits.name), std::move(reads), writes, set);
  if (traits.block_elements > 1) {
    nodes[made].many = path(std::string("matmul_many/") + traits.name);
  }
  return made;
}

Product Program::product(const Member& member, int x) {
  const RowSet set = buffers[check_value(x, "x")].set;
  const int rows = member.weight->rows;
  if (!member.bias.empty() && static_cast<int>(member.bias.size()) != rows) {
    refuse("a bias must have one element per output");
  }
  const int activations = prepared(x, *member.weight);
  std::vector<int> reads{activations};
  if (member.residual >= 0) reads.push_back(check_read(member.residual, rows, "residual"));
  check_write(member.out, rows, set);
  const int made = product_node(member.weight->type, reads, member.out, set);
  return {made, member.out, member.weight, activations, member.bias, member.residual};
}

void Program::place_products(RowSet set, std::vector<Product> products) {
  const int index = static_cast<int>(phases.size());
  for (const Product& product : products) {
    for (const int read : nodes[product.node].reads) touch(read, index);
    touch(product.out, index);
  }
  phases.push_back(std::make_unique<ProductPhase>(set, std::move(products)));
  open_ = nullptr;
}

void Program::linear_group(int x, const std::vector<Member>& members) {
  if (members.empty()) refuse("a group of linears needs a member");
  std::vector<Product> products;
  for (const Member& member : members) products.push_back(product(member, x));
  place_products(buffers[x].set, std::move(products));
}

void Program::gated_linear(int out, int x, std::shared_ptr<const Matrix> gate,
                           std::shared_ptr<const Matrix> up, Activation activation) {
  if (gate->rows != up->rows) refuse("gate and up must have the same number of rows");
  const int up_activations = prepared(x, *up);
  Product made = product({out, gate, {}, -1}, x);
  made.up = up;
  made.up_activations = up_activations;
  made.activation = activation;
  nodes[made.node].reads.push_back(up_activations);
  made.up_node = product_node(up->type, {up_activations}, out, buffers[x].set);
  std::vector<Product> products;
  products.push_back(std::move(made));
  place_products(buffers[x].set, std::move(products));
}

}  // namespace slipstream
