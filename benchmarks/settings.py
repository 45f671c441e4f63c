"""What all rows of the benchmarks are measured with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Row
from detaug.tools.bench.systems import Workers

SEED = 20261121

#: Two processes; as many batches may wait as nnU-Net has for up to 12 workers.
WORKERS = Workers(processes=2, num_cached=6)


@dataclass(frozen=True)
class Settings:
    """How long to measure, and on which data.

    Attributes:
        data: the folder of nnU-Net's data sets, or where they are made.
        quick: few and short rounds, which show that everything runs and not how fast.
    """

    data: Path
    quick: bool = False

    def rounds(self, full: int) -> int:
        """Return how many rounds to measure."""
        if self.quick:
            return min(2, full)
        return full

    def batches(self, full: int) -> int:
        """Return how many batches to time in a round."""
        if self.quick:
            return min(full, max(8, full // 10))
        return full


#: Measures a row.
Measure = Callable[[Settings], Row]
