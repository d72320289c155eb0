"""The plan that `lab init` writes."""
