"""What is no data set and no loader though it looks like one, and arguments as torch's DataLoader
spells them: each is answered with the line to write.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar, cast

from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

from detaug.seeding.tree import positive_int

Constructor = TypeVar("Constructor", bound=Callable[..., None])

_CALL = "DeterministicAugmenter.from_dataset"
#: What to write in place of an argument, where the name alone does not say it.
_INSTEAD = {
    **dict.fromkeys(
        (
            *("dataset", "batch_size", "shuffle", "drop_last", "collate_fn"),
            *("sampler", "batch_sampler", "worker_init_fn"),
        ),
        f"it goes with a data set, {_CALL}(dataset, batch_size, {{name}}=...)",
    ),
    **dict.fromkeys(
        ("start_method", "max_restarts", "stall_timeout", "max_worker_memory"),
        "write executor=LocalProcesses({name}={value})",
    ),
    **dict.fromkeys(
        ("on_mismatch", "guard", "every", "ignore"), "write check=Check({name}={value})"
    ),
    "num_workers": "write num_processes={value}",
    "prefetch_factor": "write num_cached={value}",
    "generator": "write seed=...",
    "persistent_workers": "leave it out: workers live from epoch to epoch, until close()",
    "timeout": "write executor=LocalProcesses(stall_timeout={value})",
    "multiprocessing_context": "write executor=LocalProcesses(start_method={value})",
}


def answers_unknown_arguments(constructor: Constructor) -> Constructor:
    """Decorate `DeterministicAugmenter`'s constructor: an argument that it does not have is told
    first.

    Python's own message would say that another one is missing, if it is one that was misspelled.
    """
    known = inspect.signature(constructor).parameters

    @functools.wraps(constructor)
    def checked(*arguments: Any, **options: Any) -> None:
        refuse_arguments(options, known)
        constructor(*arguments, **options)

    return cast(Constructor, checked)


def refuse_arguments(arguments: Mapping[str, Any], known: Collection[str]) -> None:
    """TypeError: `DeterministicAugmenter` does not have one of these arguments."""
    for name, value in arguments.items():
        if name in known:
            continue
        instead = _INSTEAD.get(name, "").format(name=name, value=repr(value))
        near = get_close_matches(name, known, 1)
        advice = instead or (
            f"did you mean {near[0]}=?"
            if near
            else "help(DeterministicAugmenter) lists what it has"
        )
        raise TypeError(f"DeterministicAugmenter has no argument {name}={value!r:.60}: {advice}")


def refuse_as_dataset(dataset: Any) -> None:
    """TypeError: it is no map-style data set, or one that cannot be shared among processes."""
    _refuse_libraries(dataset)
    kind = type(dataset)
    by_number = hasattr(kind, "__getitem__") and hasattr(kind, "__len__")
    by_name = isinstance(dataset, Mapping) and 0 not in dataset
    if not by_number or by_name or isinstance(dataset, (str, bytes)):
        raise TypeError(
            "from_dataset needs a map-style data set, with items 0 ... len - 1, got "
            f"{dataset!r:.80} of type {kind.__name__}: "
            f"pass an instance of one, or a list of samples, {_CALL}(list(samples), batch_size). "
            "What gives batches by itself "
            "goes to DeterministicAugmenter(data, transform, num_processes)"
        )


def batch_size_of(value: Any) -> int:
    """The argument as an int. TypeError, ValueError: it was forgotten, or cannot be right."""
    if value is None:
        raise TypeError(
            f"{_CALL} needs batch_size, the number of samples in a batch: {_CALL}(dataset, 2, "
            "...). What gives batches by "
            "itself goes to DeterministicAugmenter(data, transform, num_processes)"
        )
    return positive_int("batch_size", value)


def length_of(data: Any) -> int:
    """Return ``len(data)``.

    Raises:
        TypeError: There is no ``__len__``.
        ValueError: What it gives is no length; its class is named, and the value.
    """
    try:
        return len(data)
    except (TypeError, ValueError, OverflowError) as error:
        frames = error.__traceback__
        was_raised_inside = frames is not None and frames.tb_next is not None
        if was_raised_inside or not hasattr(type(data), "__len__"):
            raise
        kind = type(data)
        raise ValueError(
            f"{kind.__qualname__}.__len__ must give an integer from 0 to {sys.maxsize}, got "
            f"{kind.__len__(data)!r}"
        ) from None


def refuse_orders(orders: Mapping[str, Any], iterable: bool) -> None:
    """TypeError: more of these arguments of `from_dataset` say an order than one; or than none
    beside an iterable data set.
    """
    given = [name for name, value in orders.items() if value is not None and value is not False]
    if given and iterable:
        raise TypeError(
            f"an IterableDataset gives its samples in an order of its own, so that {given[0]} has "
            "no effect: leave it out, or "
            "pass a map-style data set"
        )
    if len(given) > 1:
        raise TypeError(
            f"each of {' and '.join(given)} says the order: pass one of them to {_CALL}"
        )


def refuse_as_loader(loader: Any) -> None:
    """TypeError: `DeterministicAugmenter` cannot take it, for it gives no batches."""
    if inspect.isgenerator(loader) or inspect.isasyncgen(loader):
        raise TypeError(
            f"{loader!r} is a generator object, which cannot be copied to other processes or "
            "started again. "
            "Pass the function that makes it: DeterministicAugmenter(make_batches, ...) and not "
            "make_batches()."
        )
    if isinstance(loader, (str, bytes, os.PathLike)):
        raise TypeError(
            f"{loader!r} is a path, and gives no batches: pass a loader that reads what is there"
        )
    _refuse_libraries(loader)
    kind = loader if isinstance(loader, type) else type(loader)
    gives_batches = (
        hasattr(kind, "__next__") or hasattr(kind, "__iter__") or hasattr(loader, "__iter__")
    )
    if not gives_batches and hasattr(loader, "__getitem__") and hasattr(loader, "__len__"):
        raise TypeError(
            f"{kind.__name__} is a map-style data set; use {_CALL}(dataset, batch_size, ...)"
        )


def _refuse_libraries(data: Any) -> None:
    """TypeError: it has MONAI's SmartCacheDataset in it, or is a torch DataLoader."""
    for part in wrapped(data):
        kinds = type(part).__mro__
        if any(
            kind.__name__ == "SmartCacheDataset" and kind.__module__.startswith("monai.")
            for kind in kinds
        ):
            raise TypeError(
                "MONAI's SmartCacheDataset replaces its items in the process that calls "
                "update_cache(), and the copies in "
                "workers keep those that they began with: most of the data would never be trained "
                "on. Use "
                "monai.data.CacheDataset(data, transform), or PersistentDataset(data, transform, "
                "cache_dir=...)"
            )
    if isinstance(data, DataLoader):
        raise TypeError(
            "a DataLoader makes batches itself, in an order and with workers of its own: pass its "
            "data set, "
            f"{_CALL}(loader.dataset, {', '.join(_as_in(data))}, num_processes={data.num_workers})"
        )


def _as_in(loader: DataLoader[Any]) -> Iterator[str]:
    """Arguments of `from_dataset` that do what the torch DataLoader does."""
    if loader.batch_size is None and loader.batch_sampler is not None:
        yield "batch_sampler=loader.batch_sampler"
    else:
        yield f"{loader.batch_size or 1}"
        kind, streams = type(loader.sampler), isinstance(loader.dataset, IterableDataset)
        plain = kind is SequentialSampler or (
            kind is RandomSampler and not loader.sampler.replacement  # type: ignore[attr-defined]
        )
        yield from (
            []
            if streams
            else [f"shuffle={kind is RandomSampler}" if plain else "sampler=loader.sampler"]
        )
        yield from ["drop_last=True"] if loader.drop_last else []
    if loader.batch_sampler is None:
        yield "collate_fn=lambda samples: loader.collate_fn(samples[0])"
    elif loader.collate_fn is not default_collate:
        yield "collate_fn=loader.collate_fn"
    if loader.worker_init_fn is not None:
        yield "worker_init_fn=loader.worker_init_fn"


def flag(what: str, value: Any) -> bool:
    """True or False; None is False, as for torch's DataLoader. TypeError: a text, which would be
    True whatever it says.
    """
    if isinstance(value, str):
        raise TypeError(f"{what} must be True or False, got {value!r}")
    return bool(value)


def loses_its_place(loader: Any) -> bool:
    """Whether its own state does not say all of where it stands: a shuffle buffer of Hugging Face's
    streaming data sets is filled anew on resuming.
    """
    left = [getattr(part, "_ex_iterable", None) for part in wrapped(loader)]
    while left:
        part = left.pop()
        if type(part).__name__ == "BufferShuffledExamplesIterable":
            return True
        if type(part).__module__.partition(".")[0] == "datasets":
            for value in vars(part).values():
                left.extend(value if isinstance(value, list) else [value])
    return False


def wrapped(data: Any) -> Iterator[Any]:
    """A data set or loader, and what it wraps, as torch's Subset and ConcatDataset do."""
    left, seen = [data], set()
    while left:
        part = left.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        attributes = getattr(part, "__dict__", {})
        several = attributes.get("datasets")
        left += [
            attributes.get("dataset"),
            *(several if isinstance(several, (list, tuple)) else ()),
        ]
