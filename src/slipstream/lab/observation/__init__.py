"""What the machine, a process, a log or a counter shows, beside the requests."""
