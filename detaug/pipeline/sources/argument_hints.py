"""Errors about objects and arguments of other libraries, each with the line to write instead.

The objects look like a data set or a loader; the arguments are spelled as torch's DataLoader has
them.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar, cast

from torch.utils.data import DataLoader

from detaug.seeding.tree import positive_int

Constructor = TypeVar("Constructor", bound=Callable[..., None])

_CALL = "DeterministicAugmenter.from_dataset"
_OF_DATASET = f"it goes with a data set, {_CALL}(dataset, batch_size, {{name}}=...)"
_OF_PROCESSES = "write executor=LocalProcesses({name}={value})"
_OF_CHECK = "write check=Check({name}={value})"
#: What to write in place of an argument, unless the name alone says it.
_INSTEAD = {
    "dataset": _OF_DATASET,
    "batch_size": _OF_DATASET,
    "shuffle": _OF_DATASET,
    "drop_last": _OF_DATASET,
    "collate_fn": _OF_DATASET,
    "sampler": _OF_DATASET,
    "batch_sampler": _OF_DATASET,
    "worker_init_fn": _OF_DATASET,
    "start_method": _OF_PROCESSES,
    "max_restarts": _OF_PROCESSES,
    "stall_timeout": _OF_PROCESSES,
    "max_worker_memory": _OF_PROCESSES,
    "on_mismatch": _OF_CHECK,
    "guard": _OF_CHECK,
    "every": _OF_CHECK,
    "ignore": _OF_CHECK,
    "num_workers": "write num_processes={value}",
    "prefetch_factor": "write num_cached={value}",
    "generator": "write seed=...",
    "persistent_workers": "leave it out: workers live from epoch to epoch, until close()",
    "timeout": "write executor=LocalProcesses(stall_timeout={value})",
    "multiprocessing_context": "write executor=LocalProcesses(start_method={value})",
}


def answers_unknown_arguments(constructor: Constructor) -> Constructor:
    """Decorate a constructor so that an argument that it does not have is reported first.

    Python's own message would say that another one is missing, if it is one that was misspelled.
    """
    known = inspect.signature(constructor).parameters

    @functools.wraps(constructor)
    def checked(*arguments: Any, **options: Any) -> None:
        refuse_arguments(options, known)
        constructor(*arguments, **options)

    return cast(Constructor, checked)


def refuse_arguments(arguments: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise an error if `DeterministicAugmenter` does not have one of these arguments.

    Args:
        arguments: the arguments, by name.
        known: the names that it has.

    Raises:
        TypeError: a name is not known; the message says what to write instead.
    """
    for name, value in arguments.items():
        if name not in known:
            advice = _advice_on(name, value, known)
            raise TypeError(
                f"DeterministicAugmenter has no argument {name}={value!r:.60}: {advice}"
            )


def _advice_on(name: str, value: Any, known: Collection[str]) -> str:
    if name in _INSTEAD:
        return _INSTEAD[name].format(name=name, value=repr(value))
    similar_names = get_close_matches(name, known, 1)
    if similar_names:
        return f"did you mean {similar_names[0]}=?"
    return "help(DeterministicAugmenter) lists what it has"


def refuse_as_dataset(dataset: Any) -> None:
    """Raise an error if an object is no map-style data set that processes can share.

    Raises:
        TypeError: it has no items 0 ... len - 1, or a library's data set that has its own workers.
    """
    _refuse_libraries(dataset)
    kind = type(dataset)
    by_number = hasattr(kind, "__getitem__") and hasattr(kind, "__len__")
    # A dict has items and a length, but not the items 0 ... len - 1.
    by_name = isinstance(dataset, Mapping) and 0 not in dataset
    if not by_number or by_name or isinstance(dataset, (str, bytes)):
        raise TypeError(
            "a data set must be map-style, with items 0 ... len - 1, or an IterableDataset, got "
            f"{dataset!r:.80} of type {kind.__name__}: pass an instance of one, or a list of "
            "samples, list(samples). Pass an object that makes batches itself to "
            "DeterministicAugmenter(data, transform, num_processes)"
        )


def batch_size_of(value: Any) -> int:
    """Return the argument `batch_size` as an int.

    Raises:
        TypeError: it is missing, or no number.
        ValueError: it is not positive.
    """
    if value is None:
        raise TypeError(
            f"{_CALL} needs batch_size, the number of samples in a batch: {_CALL}(dataset, 2, "
            "...). Pass an object that makes batches itself to DeterministicAugmenter(data, "
            "transform, num_processes)"
        )
    return positive_int("batch_size", value)


def length_of(data: Any) -> int:
    """Return ``len(data)``.

    Raises:
        TypeError: there is no ``__len__``.
        ValueError: it gives a value that is no length; the message names the class and the value.
    """
    try:
        return len(data)
    except (TypeError, ValueError, OverflowError) as error:
        # An error from inside the user's __len__ is the user's own.
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
    """Raise an error if the arguments of `from_dataset` do not say one order.

    Args:
        orders: the arguments that say an order, by name.
        iterable: the data set is iterable, which has an order of its own.

    Raises:
        TypeError: several of them are set, or one for an iterable data set.
    """
    # shuffle=False together with a sampler is no contradiction.
    names = [name for name, value in orders.items() if value is not None and value is not False]
    if names and iterable:
        raise TypeError(
            f"an IterableDataset gives its samples in an order of its own, so that {names[0]} has "
            "no effect: leave it out, or pass a map-style data set"
        )
    if len(names) > 1:
        raise TypeError(
            f"{' and '.join(names)} each define the order: pass only one of them to {_CALL}"
        )


def refuse_as_loader(loader: Any) -> None:
    """Raise an error if an object gives no batches that `DeterministicAugmenter` can take.

    Raises:
        TypeError: it is a generator object, a path, a map-style data set, or a DataLoader.
    """
    if inspect.isgenerator(loader) or inspect.isasyncgen(loader):
        raise TypeError(
            f"{loader!r} is a generator object, which cannot be copied to other processes or "
            "started again. Pass the function that makes it: "
            "DeterministicAugmenter(make_batches, ...) and not make_batches()."
        )
    if isinstance(loader, (str, bytes, os.PathLike)):
        raise TypeError(
            f"{loader!r} is a path and gives no batches: pass a loader that reads the files there"
        )
    _refuse_libraries(loader)
    # A class is called to get a loader, so what counts is the methods of its instances.
    kind = loader if isinstance(loader, type) else type(loader)
    if hasattr(kind, "__next__") or hasattr(kind, "__iter__") or hasattr(loader, "__iter__"):
        return
    if hasattr(loader, "__getitem__") and hasattr(loader, "__len__"):
        raise TypeError(
            f"{kind.__name__} is a map-style data set; use {_CALL}(dataset, batch_size, ...)"
        )


def _refuse_libraries(data: Any) -> None:
    """Raise an error for MONAI's SmartCacheDataset, also inside another one, and for a DataLoader.

    Raises:
        TypeError: it is one of them.
    """
    for part in wrapped(data):
        if _is_smart_cache(part):
            raise TypeError(
                "MONAI's SmartCacheDataset replaces its items in the process that calls "
                "update_cache(), and the copies in workers keep those that they began with: most "
                "of the data would never be trained on. Use monai.data.CacheDataset(data, "
                "transform), or PersistentDataset(data, transform, cache_dir=...)"
            )
    if isinstance(data, DataLoader):
        raise TypeError(
            "a DataLoader makes batches itself, in an order and with workers of its own: make a "
            "detaug.DataLoader instead, which takes the same arguments, or pass its data set, "
            f"{_CALL}(loader.dataset, batch_size, ...)"
        )


def _is_smart_cache(dataset: Any) -> bool:
    for kind in type(dataset).__mro__:
        if kind.__name__ == "SmartCacheDataset" and kind.__module__.startswith("monai."):
            return True
    return False


def flag(name: str, value: Any) -> bool:
    """Return an argument as True or False; None is False, as for torch's DataLoader.

    Raises:
        TypeError: it is a text, which would be True whatever it says.
    """
    if isinstance(value, str):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def loses_its_place(loader: Any) -> bool:
    """Return whether a loader's own state leaves out a part of its position.

    A shuffle buffer of Hugging Face's streaming data sets is filled anew on resuming.
    """
    pending = [getattr(part, "_ex_iterable", None) for part in wrapped(loader)]
    while pending:
        part = pending.pop()
        if type(part).__name__ == "BufferShuffledExamplesIterable":
            return True
        if type(part).__module__.partition(".")[0] != "datasets":
            continue
        for value in vars(part).values():
            if isinstance(value, list):
                pending.extend(value)
            else:
                pending.append(value)
    return False


def wrapped(data: Any) -> Iterator[Any]:
    """Yield a data set or loader, and those that it wraps, as torch's Subset does."""
    # `seen`, because data sets may refer to each other in a circle.
    pending = [data]
    seen = set()
    while pending:
        part = pending.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        attributes = getattr(part, "__dict__", {})
        pending.append(attributes.get("dataset"))
        several = attributes.get("datasets")
        if isinstance(several, (list, tuple)):
            pending.extend(several)
