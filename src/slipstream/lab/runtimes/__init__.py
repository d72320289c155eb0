"""Programs that are measured: one module each, behind ``base.Runtime``."""
