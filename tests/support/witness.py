"""Evidence in a batch of which process made it, and of that process's start method."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

#: Key of the witness in a batch.
WITNESS = "witness"

# A test changes this in its own process. A forked worker inherits the change. A worker of spawn or
# of a forkserver imports this module itself and has the value below.
MARK = "as imported"

#: Folders at which this process has already met other processes.
_met: set[str] = set()


def witness() -> dict[str, Any]:
    """Return what identifies the calling process and how it was started.

    `interpreter` is an address. The kernel chooses it at random for every executed interpreter, and
    a fork keeps it, so processes with equal values have a common forked ancestor.
    """
    return {"pid": os.getpid(), "mark": MARK, "interpreter": id(sys.modules)}


def meet(folder: str | None, parties: int, patience: float = 100.0) -> None:
    """Wait, once per process, until `parties` processes have come to the same folder.

    Args:
        folder: where each process leaves a file; with None nobody waits.
        parties: number of processes.
        patience: seconds until the wait fails.
    """
    if folder is None or folder in _met:
        return
    _met.add(folder)
    meeting = Path(folder)
    (meeting / str(os.getpid())).touch()
    deadline = time.monotonic() + patience
    while len(list(meeting.iterdir())) < parties:
        if time.monotonic() > deadline:
            num_present = len(list(meeting.iterdir()))
            raise TimeoutError(f"{num_present} of {parties} processes came to {folder}")
        time.sleep(0.01)


def without_witness(batch: Any) -> Any:
    """Return a batch without its witness; a batch that is no mapping has none."""
    if not isinstance(batch, Mapping):
        return batch
    return {key: value for key, value in batch.items() if key != WITNESS}


def assert_made_by_workers(
    start_method: str, batches: Iterable[Mapping[str, Any]], at_least: int = 1
) -> None:
    """Assert that at least `at_least` other processes, all of one start method, made the batches.

    Call it while MARK still has the value that it had when the workers were started, which must not
    be "as imported".
    """
    witnesses = {}
    for batch in batches:
        witnesses[batch[WITNESS]["pid"]] = batch[WITNESS]
    assert os.getpid() not in witnesses, "a batch was made in the calling process"
    assert len(witnesses) >= at_least, f"only {len(witnesses)} processes made batches"
    parent = witness()
    assert parent["mark"] != "as imported"
    marks = {worker["mark"] for worker in witnesses.values()}
    interpreters = {worker["interpreter"] for worker in witnesses.values()}
    if start_method == "fork":
        assert marks == {parent["mark"]}, "a forked worker inherits what the parent's modules hold"
        assert interpreters == {parent["interpreter"]}
        return
    assert marks == {"as imported"}, f"a worker of {start_method} imports modules anew"
    assert parent["interpreter"] not in interpreters
    if start_method == "spawn":
        num_workers = len(witnesses)
        assert len(interpreters) == num_workers, "each spawned worker is an interpreter of its own"
    else:
        assert len(interpreters) == 1, "workers of one forkserver are forks of one interpreter"
