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
    case ActivationKind::planes_per_32:
      return "planes_per_32";
    case ActivationKind::planes_per_256:
      return "planes_per_256";
  }
  return "unknown";
}

// As dispatch names its kernels: a type whose activations are two planes says so.
std::string type_label(WeightType type, Precision precision) {
  const WeightTraits& traits = *weight_traits(type);
  const bool planes = activation_kind(type, precision) != traits.activation;
  return std::string(traits.name) + (planes ? "-a16" : "");
}

}  // namespace

int Program::prepared(int x, const Matrix& weight) {
  check_read(x, weight.columns, "x");
  const ActivationKind kind = activation_kind(weight.type, precision);
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
int Program::product_node(const Matrix& weight, std::vector<int> reads, int writes, RowSet set) {
  const std::string type = type_label(weight.type, precision);
  const int made = node(path("matmul/" + type), std::move(reads), writes, set);
  if (weight_traits(weight.type)->block_elements > 1) {
    nodes[made].many = path("matmul_many/" + type);
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
  const int made = product_node(*member.weight, reads, member.out, set);
  return {made, member.out, member.weight, activations, member.bias, member.residual};
}

void Program::place_products(RowSet set, std::vector<Product> products) {
  const int index = static_cast<int>(phases.size());
  for (const Product& product : products) {
    for (const int read : nodes[product.node].reads) touch(read, index);
    touch(product.out, index);
  }
  phases.push_back(std::make_unique<ProductPhase>(set, precision, std::move(products)));
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
  made.up_node = product_node(*up, {up_activations}, out, buffers[x].set);
  std::vector<Product> products;
  products.push_back(std::move(made));
  place_products(buffers[x].set, std::move(products));
}

}  // namespace slipstream
