"""The loop that drafts, verifies and commits, one target pass at a time."""
