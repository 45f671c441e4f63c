"""`KeptDraws`: random numbers that a batch draws and a variable keeps for all later batches.

A process that makes all batches makes a batch again with the numbers that it has kept, so that
nothing differs; a restart, a resumed run and every worker would draw others. But the second time
the batch does not draw them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from detaug.engine.replayer import Replayer
from detaug.objects.variables import lies_in, variables_of
from detaug.objects.walking import walk
from detaug.pipeline.loader_states import LoaderState
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Pipeline, Producer
from detaug.system.interrupts import is_interrupt

#: How many objects in a variable are compared.
_MOST_PARTS = 1_000
#: Arrays of at most these bytes are compared by what they hold.
_SMALL_ARRAY = 65_536
#: How many variables a warning names.
_MOST_NAMED = 4
_PLAIN = (int, float, complex, str, bytes, type(None))


class KeptDraws:
    """The search in the first, second, fourth, eighth ... batch of a process that makes all.

    Args:
        pipeline: the pipeline.
        replayer: makes a batch a second time.
    """

    def __init__(self, pipeline: Pipeline, replayer: Replayer) -> None:
        self._pipeline = pipeline
        self._replayer = replayer
        #: Variables that batches change, and that keep no random numbers.
        self._harmless: set[str] = set()
        #: The variables that the latest batch has changed.
        self._changed: set[str] = set()
        #: What it has drawn.
        self._draws: list[str] = []

    @contextmanager
    def watching(self, producer: Producer, nth_batch: int) -> Iterator[None]:
        """Note what the batch that is made inside the block draws, and which variables it changes.

        Args:
            producer: makes it.
            nth_batch: which of this process's batches it is, from 1.
        """
        self._changed = set()
        # Not in every batch: to look at the variables may take longer than a small batch.
        if nth_batch.bit_count() > 1:
            yield
            return
        code = self._pipeline.undeclared.code.references
        before = _Variables(code)
        with producer.draws.recording() as draws:
            yield
        self._draws = draws
        self._changed = _Variables(code).changed_since(before) - self._harmless

    @property
    def is_due(self) -> bool:
        """True: `remark` makes the latest batch again. False: it has changed no variable."""
        return bool(self._changed)

    def remark(self, key: BatchKey, state: LoaderState | None) -> str:
        """Make the latest batch again, and return the warning about it; empty: there is none.

        Args:
            key: the batch.
            state: as that of `Replayer.make`.
        """
        changed = self._changed
        self._changed = set()
        try:
            with self._replayer.producer() as producer, producer.draws.recording() as draws:
                producer.make(*key, state=state)
        except BaseException as error:
            if is_interrupt(error):
                raise
            # The run-time check makes batches again as well, and says why that cannot be done.
            return ""
        if draws == self._draws:
            self._harmless |= changed
            return ""
        outermost = sorted(name for name in changed if not lies_in(name, changed - {name}))
        names = ", ".join(outermost[:_MOST_NAMED])
        return (
            f"epoch {key.epoch}, step {key.step} draws random numbers that a variable keeps for "
            f"later batches: it has changed {names}, and made again it does not draw the same. "
            "Later batches depend on which batch this process made first, so they differ after a "
            "restart, and with any other number of processes. Draw the numbers for every batch, or "
            "in a constructor, from a seed"
        )


class _Variables:
    """The variables that a pipeline's code reads or writes, at one moment.

    Objects are compared by identity, so they are kept alive.
    """

    def __init__(self, code: Iterable[Any]) -> None:
        self._parts: dict[str, dict[str, Any]] = {}
        for name, value in variables_of(code):
            parts = dict(walk([(name, value)], _MOST_PARTS, plain=True))
            # To make a network draws weights, which others replace.
            if not any(isinstance(part, torch.nn.Module) for part in parts.values()):
                self._parts[name] = {path: _contents(part) for path, part in parts.items()}

    def changed_since(self, earlier: _Variables) -> set[str]:
        """Return the variables that are not as they were."""
        changed = set()
        for name, parts in self._parts.items():
            if not _are_same(parts, earlier._parts.get(name, {})):
                changed.add(name)
        return changed


def _contents(part: Any) -> Any:
    """Return the bytes of a small array, and any other object itself."""
    if isinstance(part, np.ndarray) and part.nbytes <= _SMALL_ARRAY and not part.dtype.hasobject:
        return part.tobytes()
    return part


def _are_same(parts: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    if parts.keys() != others.keys():
        return False
    for path, part in parts.items():
        other = others[path]
        if part is not other and not (isinstance(part, _PLAIN) and part == other):
            return False
    return True
