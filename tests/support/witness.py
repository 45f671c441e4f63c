"""Who made a batch: evidence that a worker was another process, and of which start method."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

WITNESS = "witness"

# A test changes this in its own process. A forked worker sees the change; a spawned one and one of
# a forkserver import the module anew and see the value below.
MARK = "as imported"

_met: set[str] = set()


def witness() -> dict[str, Any]:
    """What the calling process knows of itself.

    `interpreter` is an address, which the kernel chooses at random for every executed interpreter
    and which a fork keeps: equal values mean a common forked ancestor.
    """
    return {"pid": os.getpid(), "mark": MARK, "interpreter": id(sys.modules)}


def meet(folder: str | None, parties: int, patience: float = 100.0) -> None:
    """Wait, once per process, until `parties` processes have come to the same folder."""
    if folder is None or folder in _met:
        return
    _met.add(folder)
    place = Path(folder)
    (place / str(os.getpid())).touch()
    deadline = time.monotonic() + patience
    while len(list(place.iterdir())) < parties:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"{len(list(place.iterdir()))} of {parties} processes came to {folder}"
            )
        time.sleep(0.01)


def without_witness(batch: Any) -> Any:
    return {k: v for k, v in batch.items() if k != WITNESS} if isinstance(batch, Mapping) else batch


def assert_made_by_workers(
    start_method: str, batches: Iterable[Mapping[str, Any]], at_least: int = 1
) -> None:
    """The batches come from at least that many other processes, all started by `start_method`.

    Call it while MARK still has the value it had when the workers were started, which is not "as
    imported".
    """
    seen = {w["pid"]: w for w in (batch[WITNESS] for batch in batches)}
    assert os.getpid() not in seen, "a batch was made in the calling process"
    assert len(seen) >= at_least, f"only {len(seen)} processes made batches"
    here = witness()
    assert here["mark"] != "as imported"
    marks = {w["mark"] for w in seen.values()}
    salts = {w["interpreter"] for w in seen.values()}
    if start_method == "fork":
        assert marks == {here["mark"]}, "a forked worker inherits what the parent's modules hold"
        assert salts == {here["interpreter"]}
        return
    assert marks == {"as imported"}, f"a worker of {start_method} imports modules anew"
    assert here["interpreter"] not in salts
    if start_method == "spawn":
        assert len(salts) == len(seen), "each spawned worker is an interpreter of its own"
    else:
        assert len(salts) == 1, "workers of one forkserver are forks of one interpreter"
