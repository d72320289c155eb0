"""Which blocks a run has and which of them may run now: functions of manifest and records."""
