"""Processes, passes and their records: a run from its first block to its last."""
