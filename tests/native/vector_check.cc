// Checks the vector kernels of every level: against double oracles and against each other's bits.
// Usage: vector_check SECTION...; exit status 1 on any failure, 2 on an unknown section.
#include "vector_check.hh"

namespace slipstream::check {
namespace {

struct Section {
  const char* name;
  void (*run)();
};

constexpr Section kSections[] = {{"math", check_math},
                                 {"elementwise", check_elementwise},
                                 {"attention", check_attention},
                                 {"sampling", check_sampling},
                                 {"speed", time_kernels}};

bool run(const char* name) {
  for (const Section& section : kSections) {
    if (std::strcmp(section.name, name) != 0) continue;
    section.run();
    std::printf("%s: %d failures\n", name, failures);
    return true;
  }
  std::printf("unknown section %s\n", name);
  return false;
}

}  // namespace
}  // namespace slipstream::check

int main(int count, char** names) {
  using namespace slipstream::check;
  std::printf("levels:");
  for (const auto* level : levels()) std::printf(" %s", level->isa);
  std::printf("\n");
  for (int i = 1; i < count; ++i)
    if (!run(names[i])) return 2;
  return failures ? 1 : 0;
}
