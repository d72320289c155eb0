"""What a run fixes before its first request: found out, or `unknown`."""
