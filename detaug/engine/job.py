"""`Job`: what a process that makes batches has to know."""

from __future__ import annotations

from dataclasses import dataclass

from detaug.processes.surroundings import ProcessSettings
from detaug.seeding.current import SeedBranch


@dataclass(frozen=True)
class Job:
    """What a process that makes batches has to know.

    Attributes:
        noted: a ledger is kept: every batch that is made travels as (batch, `detaug.ledger.lines.Note`), and `Engine.next`
            gives that pair; these keys are left out of its fingerprints. None: there is no ledger.
    """

    branch: SeedBranch
    settings: ProcessSettings  # of the parent's process, where the engine started
    guard: bool = False  # report generators created without a seed
    max_memory: int | None = (
        None  # a worker that uses more bytes of private memory after a batch retires; None: never
    )
    check_every: int = 0  # see `detaug.engine.checking.making.is_checked`; 0: nothing is checked
    check_ignore: tuple[str, ...] = ()  # keys of batches that may differ
    noted: tuple[str, ...] | None = None
    num_workers: int = 1
