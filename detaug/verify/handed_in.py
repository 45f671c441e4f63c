"""Turns a factory's result into the parts of an augmenter: a source, a transform, and arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset

from detaug.engine.augmenter import DeterministicAugmenter
from detaug.engine.inspection import inspected
from detaug.sources import DatasetSource, Source, resolve_source

Factory = Callable[[], Any]

#: Samples in a batch of a data set that comes without a batch size; fewer where it is too small for so many batches.
BATCH_SIZE, _BATCHES = 4, 4

_EXPECTED = (
    "the factory must return (loader, transform), where the transform may be None, a map-style data set, (data set, "
    "transform), or a DeterministicAugmenter; it returned "
)


class UnusableError(ValueError):
    """The factory's pipeline cannot be verified; the message says why."""


@dataclass(frozen=True)
class HandedIn:
    """A freshly made pipeline.

    Attributes:
        source, transform: the pipeline.
        seed: the augmenter's own; None where it has none, or drew it.
        name, num_streams, batches_per_epoch, keep: of the augmenter, else its defaults.
    """

    source: Source
    transform: Any
    seed: Any = None
    name: str = ""
    num_streams: int | None = None
    batches_per_epoch: int | None = None
    keep: tuple[str, ...] = ()


def call_factory(factory: Factory, stateless: bool | None = None, batches_per_epoch: int | None = None) -> HandedIn:
    """What a factory gives.

    Args:
        factory: returns (loader, transform), a map-style data set, (data set, transform) or a DeterministicAugmenter.
        stateless: what the loader is declared to be; None: as an augmenter has it, else the safe reading.
        batches_per_epoch: where epochs are cut; None: where the augmenter cuts them, else nowhere.

    Raises:
        UnusableError: it gives something else.
    """
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
    )
    augmenter.close()  # its workers, if it has any: every row starts its own
    return found


def _source_of(loader: Any, stateless: bool | None, batches_per_epoch: int | None) -> Source:
    return resolve_source(_of_dataset(loader) if is_map_style(loader) else loader, stateless, batches_per_epoch)


def _of_dataset(dataset: Any) -> DatasetSource:
    """As `DeterministicAugmenter.from_dataset` makes it, shuffled."""
    return DatasetSource(dataset, max(1, min(BATCH_SIZE, len(dataset) // _BATCHES)))
