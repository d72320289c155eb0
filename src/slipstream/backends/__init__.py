"""What runs a graph: the contract and one module per backend."""
