"""What a training says of itself in nnU-Net's own log: findings as they come, a line at the start, a line at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from detaug.engine.augmenter import DeterministicAugmenter
from detaug.nnunet.compatibility import is_nnunets_own
from detaug.training.switches import Changes

logger = logging.getLogger("detaug")


class _Handler(logging.Handler):
    def __init__(self, write: Callable[..., None]) -> None:
        super().__init__(logging.INFO)
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        level = "" if record.levelno < logging.WARNING else f"{record.levelname}: "
        self._write(f"detaug: {level}{self.format(record)}")


@contextmanager
def detaugs_log_to(write: Callable[..., None]) -> Iterator[None]:
    """Inside, all that detaug logs, at INFO and above, goes to nnU-Net's `print_to_log_file`, a text a record."""
    handler, before = _Handler(write), logger.level
    logger.addHandler(handler)
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def checks_line(loaders: Iterable[DeterministicAugmenter]) -> str:
    """For the log, at the training's end: how far the run-time check went."""
    told = [loader.stats() for loader in loaders]
    checked, informative = (sum(each[name] for each in told) for name in ("checked", "informative"))
    could = f"{informative} of these could have shown state that is carried from batch to batch"
    return f"detaug: {checked} batches were made twice and compared; {could}"


def opening_line(loaders: Mapping[str, Any], changes: Changes, compiles: bool, threads: int) -> str:
    """What the training is made of, in one line: its loaders by name, torch's switches, compiler, and threads on a CPU."""
    switches = ", ".join(f"{name} {each.before} -> {each.after}" for name, each in changes.items())
    parts = [
        *(f"{name} from {_described(loader)}" for name, loader in loaders.items()),
        f"switches changed: {switches or 'none'}",
        f"torch.compile {'on' if compiles else 'off'}",
        *([f"{threads} CPU thread{'s' * (threads != 1)}"] if threads else []),
    ]
    return f"detaug: {'; '.join(parts)}"


def _described(loader: Any) -> str:
    if not isinstance(loader, DeterministicAugmenter):
        return f"a {named(loader)}, left as it is (its batches are what it makes them)"
    source = loader.generator
    transforms = getattr(source, "transforms", loader.transform)
    where = type(loader.executor).__name__
    return f"{named(source)} and {named(transforms)} ({where}, {loader.num_processes} processes, guard and check on)"


def named(value: Any) -> str:
    """The class of a loader, or of transforms."""
    kind = type(value)
    is_known = kind.__module__.startswith("detaug.") or is_nnunets_own(kind)
    return kind.__name__ if is_known else f"{kind.__module__}.{kind.__name__}"
