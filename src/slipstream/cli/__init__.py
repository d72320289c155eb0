"""Command line: arguments and printing only, one module per verb."""
