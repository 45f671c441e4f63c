"""Batches and pipelines on their way between processes."""
