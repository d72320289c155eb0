"""What a step remembers of a sequence: the contract and one module per kind."""
