"""Helpers for training loops, and detaug's transforms in a plain torch Dataset."""

from detaug.loops.prefetching import prefetch_to
from detaug.loops.samples import Augmented

__all__ = ["Augmented", "prefetch_to"]
