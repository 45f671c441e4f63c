"""Watching a program while it runs: calls that are intercepted, and generators that nobody seeded."""
