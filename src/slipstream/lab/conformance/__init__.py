"""Whether a running server keeps its contract while it drafts (``slipstream lab conformance``)."""
