"""The configuration of the processes that make batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from detaug.seeding.current import SeedBranch
from detaug.system.process_settings import ProcessSettings


@dataclass(frozen=True)
class WorkerConfig:
    """The configuration of a process that makes batches. It is pickled for other interpreters.

    Attributes:
        branch: the branch of the seed tree from which all batches are seeded.
        settings: the settings of the parent process when the engine started.
        guard: True: generators that are created without a seed are reported. False: they are not.
        max_memory: Bytes. A worker whose private memory exceeds them after a batch retires; None:
            no limit.
        check_every: see `detaug.engine.recheck.requests.is_checked`; 0: nothing is checked.
        check_ignore: keys of batches that may differ. A ledger leaves them out of its fingerprints.
        keeps_ledger: True: every batch is sent as the pair (batch,
            `detaug.ledger.lines.BatchRecord`), and `Engine.wait` returns that pair. False: it is
            sent alone.
        num_workers: number of processes that make batches.
        variables: variables of the user's modules and classes in this program, as texts
            (`detaug.pipeline.undeclared`); a fresh interpreter may have other values.
    """

    branch: SeedBranch
    settings: ProcessSettings
    guard: bool = False
    max_memory: int | None = None
    check_every: int = 0
    check_ignore: tuple[str, ...] = ()
    keeps_ledger: bool = False
    num_workers: int = 1
    variables: Mapping[str, str] = field(default_factory=dict)
