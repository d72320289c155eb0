#include "profile.hh"

namespace slipstream {
namespace {

PhaseDescription describe(const Program& program, const RowPhase& phase) {
  PhaseDescription made{"row", {}, {}};
  for (const std::unique_ptr<RowOp>& op : phase.ops) {
    made.ops.push_back(program.nodes[op->node].label);
  }
  return made;
}

PhaseDescription describe(const Program& program, const ProductPhase& phase) {
  PhaseDescription made{"product", {}, {}};
  for (const Product& product : phase.products()) {
    made.ops.push_back(program.nodes[product.node].label);
    made.matrices.push_back(product.weight);
    if (product.up != nullptr) {
      made.ops.push_back(program.nodes[product.up_node].label);
      made.matrices.push_back(product.up);
    }
  }
  return made;
}

}  // namespace

std::vector<PhaseDescription> describe_phases(const Program& program) {
  std::vector<PhaseDescription> made;
  for (const std::unique_ptr<Phase>& phase : program.phases) {
    if (const auto* rows = dynamic_cast<const RowPhase*>(phase.get())) {
      made.push_back(describe(program, *rows));
    } else if (const auto* products = dynamic_cast<const ProductPhase*>(phase.get())) {
      made.push_back(describe(program, *products));
    } else if (dynamic_cast<const AttentionPhase*>(phase.get()) != nullptr) {
      made.push_back({"attention", {"attention"}, {}});
    } else {
      made.push_back({"other", {"other"}, {}});
    }
  }
  return made;
}

}  // namespace slipstream
