"""Verification rules: each decides which draft tokens are emitted."""
