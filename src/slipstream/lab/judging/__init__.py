"""Gates, findings and verdicts: pure functions of records."""
