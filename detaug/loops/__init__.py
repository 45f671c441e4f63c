"""How other people's training loops read an augmenter, and detaug's transforms in other people's pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from detaug.lazy_exports import lazily

if TYPE_CHECKING:
    from detaug.loops.prefetching import prefetch_to
    from detaug.loops.samples import Augmented

__all__ = ["Augmented", "prefetch_to"]

__getattr__, __dir__ = lazily(
    __name__,
    {"detaug.loops.prefetching": ("prefetch_to",), "detaug.loops.samples": ("Augmented",)},
)
