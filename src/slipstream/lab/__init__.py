"""The lab: a plan, a manifest written before anything runs, honest runs, gates, a verdict."""
