"""What all systems are run with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """The same for every system of a row.

    Attributes:
        processes: worker processes.
        num_cached: batches that may wait. nnU-Net's own value for up to 12 workers.
        wait_time: seconds between polls where a system polls. nnU-Net's own value.
        quick: few and short rounds: whether everything runs, not how fast.
    """

    processes: int = 2
    num_cached: int = 6
    wait_time: float = 0.002
    quick: bool = False

    def rounds(self, full: int) -> int:
        """How many interleaved rounds to take."""
        return 2 if self.quick else full

    def batches(self, full: int) -> int:
        """How many batches to time in one round."""
        return max(8, full // 10) if self.quick else full

    def cached_per_process(self) -> int:
        """For systems that count what may wait for each worker by itself."""
        return max(1, self.num_cached // self.processes)
