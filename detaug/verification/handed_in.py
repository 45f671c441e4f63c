"""Turns a factory's result into the parts of an augmenter: a source, a transform, and arguments."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset

from detaug.engine.augmenter import DeterministicAugmenter
from detaug.engine.failures import describe
from detaug.engine.inspection import inspected
from detaug.errors import UnusableError
from detaug.sources import DatasetSource, Source, resolve_source

Factory = Callable[[], Any]

#: Samples in a batch of a data set that comes without a batch size; fewer where it is too small for so many batches.
BATCH_SIZE, _BATCHES = 4, 4

_EXPECTED = (
    "the factory must return (loader, transform), where the transform may be None, a map-style data set, (data set, "
    "transform), or a DeterministicAugmenter; it returned "
)


class CannotTravel(UnusableError):
    """It cannot be sent to other interpreters, which is no failure."""


@dataclass(frozen=True)
class HandedIn:
    """A freshly made pipeline.

    Attributes:
        source, transform: the pipeline.
        seed: the augmenter's own; None where it has none, or drew it.
        name, num_streams, batches_per_epoch, keep, check_ignore: of the augmenter, else its defaults.
        version: the augmenter's; None: it was none.
    """

    source: Source
    transform: Any
    seed: Any = None
    name: str = ""
    num_streams: int | None = None
    batches_per_epoch: int | None = None
    keep: tuple[str, ...] = ()
    version: str | None = None
    check_ignore: tuple[str, ...] = ()

    def augmenter(self, processes: int = 0, **others: Any) -> DeterministicAugmenter:
        """An augmenter of the pipeline, alone and without the run-time check, but for `others`.

        Raises:
            TypeError, ValueError: these do not go with the pipeline.
        """
        own = ("seed", "name", "num_streams", "batches_per_epoch", "keep")
        options: dict[str, Any] = {name: getattr(self, name) for name in own}
        options |= {"check": False, "rank": 0, "world_size": 1, **others}
        return DeterministicAugmenter(self.source, self.transform, processes, **options)


def call_factory(factory: Factory, stateless: bool | None = None, batches_per_epoch: int | None = None) -> HandedIn:
    """What a factory gives.

    Args:
        factory: returns (loader, transform), a map-style data set, (data set, transform) or a DeterministicAugmenter.
        stateless: what the loader is declared to be; None: as an augmenter has it, else the safe reading.
        batches_per_epoch: where epochs are cut; None: where the augmenter cuts them, else nowhere.

    Raises:
        UnusableError: it raises, ends the program, closes its output, or gives something else.
    """
    with users_code("the factory"):
        made = factory()
    try:
        if isinstance(made, DeterministicAugmenter):
            return _of_augmenter(made, stateless, batches_per_epoch)
        if isinstance(made, tuple) and len(made) == 2:
            return HandedIn(_source_of(made[0], stateless, batches_per_epoch), made[1])
        if is_map_style(made):
            return HandedIn(_of_dataset(made), None)
    except (TypeError, ValueError) as error:
        raise UnusableError(str(error)) from error
    what = type(made).__name__ + (f" of {len(made)}" if isinstance(made, tuple) else "")
    if isinstance(made, DataLoader):
        what += ": return its data set, or DeterministicAugmenter.from_dataset(...) with its arguments"
    elif hasattr(made, "__next__") or hasattr(made, "__iter__"):
        what += ": return (it, None) if it is a loader without a transform"
    raise UnusableError(_EXPECTED + what)


@contextmanager
def users_code(what: str) -> Iterator[None]:
    """Inside, a module is imported or a factory called: what goes wrong there is one line.

    Raises:
        UnusableError: it raises, ends the program, or closes stdout, stdin or stderr.
    """
    pid = os.getpid()
    try:
        yield
    except SystemExit as leaving:
        raise UnusableError(f"{what} ends the program: sys.exit({leaving.code!r}){_place(leaving)}") from leaving
    except UnusableError:
        raise
    except Exception as error:
        raise UnusableError(f"{what} raises {' '.join(describe(error).summary.split())}{_place(error)}") from error
    finally:
        if os.getpid() != pid:  # what follows is the parent's
            os._exit(0)
    closed = [name for number, name in enumerate(("stdin", "stdout", "stderr")) if not _is_open(number)]
    for _ in closed:
        os.open(os.devnull, os.O_RDWR)  # else a pipe to a worker would have the number, and get what is printed
    if closed or sys.stdout.closed:
        raise UnusableError(f"{what} closes {' and '.join(closed) or 'sys.stdout'}, which the result is printed to")


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _place(error: BaseException) -> str:
    """The last line of the user's own file on the way to it, for a message's end."""
    ours = (os.path.dirname(__file__), "<frozen")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
    own = [frame for frame in frames if frame.filename == frames[0].filename]
    return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""


def is_map_style(value: Any) -> bool:
    """Whether it is a data set with ``__len__`` and ``__getitem__``, and not a loader of batches."""
    if isinstance(value, (str, bytes, dict, list, tuple, range, type, IterableDataset)):
        return False
    if not (hasattr(value, "__getitem__") and hasattr(value, "__len__")):
        return False
    return isinstance(value, Dataset) or not (hasattr(value, "__iter__") or hasattr(value, "__next__"))


def _of_augmenter(augmenter: DeterministicAugmenter, stateless: bool | None, batches_per_epoch: int | None) -> HandedIn:
    inside = inspected(augmenter)
    source = inside.source
    loader = source if stateless is None or isinstance(source, DatasetSource) else source.loader
    source = resolve_source(loader, stateless, batches_per_epoch or augmenter.batches_per_epoch)
    found = HandedIn(
        source,
        augmenter.transform,
        None if inside.drew_its_seed else augmenter.seed,
        augmenter.name,
        augmenter.num_streams,
        augmenter.batches_per_epoch,
        tuple(augmenter.keep),
        augmenter.version,
        tuple(augmenter.check.ignore),
    )
    augmenter.close()  # its workers, if it has any: every row starts its own
    return found


def _source_of(loader: Any, stateless: bool | None, batches_per_epoch: int | None) -> Source:
    return resolve_source(_of_dataset(loader) if is_map_style(loader) else loader, stateless, batches_per_epoch)


def _of_dataset(dataset: Any) -> DatasetSource:
    """As `DeterministicAugmenter.from_dataset` makes it, shuffled."""
    return DatasetSource(dataset, max(1, min(BATCH_SIZE, len(dataset) // _BATCHES)))
