"""How other people's training loops read an augmenter, and detaug's transforms in other people's
pipelines.
"""

from detaug.loops.prefetching import prefetch_to
from detaug.loops.samples import Augmented

__all__ = ["Augmented", "prefetch_to"]
