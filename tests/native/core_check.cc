// Links the whole native core for a processor that is emulated: prints the levels it detects, then
// wakes the thread pool and reads memory with it.
#include <cstdio>

#include "isa/levels.hh"
#include "probes.hh"

int main() {
  std::printf("levels:");
  for (const slipstream::Level& level : slipstream::levels()) std::printf(" %s", level.name);
  std::printf("\n");
  return slipstream::read_bandwidth(size_t{1} << 20, 2, 1, 1) > 0 ? 0 : 1;
}
