"""Honest measurement: interleaving, paired statistics, drift, machine probes, workloads."""
