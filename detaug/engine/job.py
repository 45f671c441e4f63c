"""The settings that the processes of a run are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from detaug.seeding.current import SeedBranch
from detaug.system.process_settings import ProcessSettings


@dataclass(frozen=True)
class WorkerConfig:
    """The settings of a process that makes batches.

    Attributes:
        branch: the branch of the seed tree from which all batches are seeded.
        settings: of the parent's process, where the engine started.
        guard: generators that are created without a seed are reported.
        max_memory: a worker that uses more bytes of private memory after a batch retires; None:
            never.
        check_every: see `detaug.engine.recheck.requests.is_checked`; 0: nothing is checked.
        check_ignore: keys of batches that may differ.
        noted: a ledger is kept: every batch that is made travels as (batch,
            `detaug.ledger.lines.Note`), and `Engine.next` gives that pair; these keys are left out
            of its fingerprints. None: there is no ledger.
        num_workers: how many processes make batches.
        variables: of the user's modules and classes, as the program has them
            (`detaug.pipeline.undeclared`); a fresh interpreter may have others.
    """

    branch: SeedBranch
    settings: ProcessSettings
    guard: bool = False
    max_memory: int | None = None
    check_every: int = 0
    check_ignore: tuple[str, ...] = ()
    noted: tuple[str, ...] | None = None
    num_workers: int = 1
    variables: Mapping[str, str] = field(default_factory=dict)
