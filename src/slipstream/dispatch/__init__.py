"""From a graph to what runs: rewrites, kernel choice and the evidence behind the kernels."""
