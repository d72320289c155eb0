"""Asking a server, timed by the client's clock, whatever it answers."""
