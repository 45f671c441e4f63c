"""Copies of a pipeline, and the generators in them that are seeded for every batch."""
