"""The plan that a user writes: read and checked."""
