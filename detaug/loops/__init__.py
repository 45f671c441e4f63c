"""Helpers for training loops, and for detaug's transforms in other libraries' pipelines."""

from detaug.loops.prefetching import prefetch_to

__all__ = ["prefetch_to"]
