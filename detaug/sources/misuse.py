"""What is no data set and no loader though it looks like one, and arguments as other libraries spell them: each is answered
with the line to write."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from torch.utils.data import DataLoader

_CALL = "DeterministicAugmenter.from_dataset"
_OF_DATASET = f"samples are put together by {_CALL}(dataset, batch_size, shuffle=..., drop_last=..., collate_fn=...)"

#: What to write in place of an argument, where the name alone does not say it.
_INSTEAD = {
    **dict.fromkeys(("num_workers", "worker_count", "n_jobs", "num_threads"), "write num_processes={value}"),
    **dict.fromkeys(("prefetch_factor", "prefetch", "worker_buffer_size"), "write num_cached={value}"),
    **dict.fromkeys(
        ("random_seed", "random_state", "manual_seed", "base_seed", "seed_everything"), "write seed={value}"
    ),
    **dict.fromkeys(("shuffle", "batch_size", "drop_last", "collate_fn", "dataset"), _OF_DATASET),
    **{
        name: f"it goes with a data set, {_CALL}(dataset, batch_size, {name}=...)"
        for name in ("sampler", "weights", "worker_init_fn")
    },
    "batch_sampler": f"it goes with a data set, {_CALL}(dataset, batch_sampler=...)",
    "generator": "write seed=...",
    "persistent_workers": "leave it out: workers live from epoch to epoch, until close()",
    "timeout": "write executor=LocalProcesses(stall_timeout={value})",
    "multiprocessing_context": "write executor=LocalProcesses(start_method={value})",
    **{
        name: f"write executor=LocalProcesses({name}={{value}})"
        for name in ("start_method", "max_restarts", "stall_timeout", "max_worker_memory")
    },
    **{name: f"write check=Check({name}={{value}})" for name in ("on_mismatch", "guard", "every", "ignore")},
    "pin_memory_device": "write pin_memory=True",
    "transforms": "write transform=...",
}


def refuse_arguments(arguments: Mapping[str, Any], known: Iterable[str]) -> None:
    """Arguments that `DeterministicAugmenter` does not have.

    Raises:
        TypeError: there are any.
    """
    for name, value in arguments.items():
        instead = _INSTEAD.get(name, "").format(value=repr(value))
        near = get_close_matches(name, known, 1)
        advice = instead or (f"did you mean {near[0]}=?" if near else "help(DeterministicAugmenter) lists what it has")
        raise TypeError(f"DeterministicAugmenter has no argument {name}={value!r:.60}: {advice}")


def refuse_as_dataset(dataset: Any) -> None:
    """What `from_dataset` cannot take.

    Raises:
        TypeError: it is no map-style data set, or one that cannot be shared among processes.
    """
    kind = type(dataset).__name__
    if isinstance(dataset, type):
        raise TypeError(
            f"{dataset.__name__} is a class: {_CALL}({dataset.__name__}(...), batch_size) takes an instance of it"
        )
    if isinstance(dataset, (str, bytes, os.PathLike)):
        raise TypeError(
            f"{dataset!r} is a path, and its letters are no samples: pass a data set that reads what is there, "
            f"{_CALL}(MyDataset({dataset!r}), batch_size)"
        )
    if isinstance(dataset, Mapping) and dataset and 0 not in dataset:
        name = next(iter(dataset))
        raise TypeError(
            f"this {kind} has samples by name, and not by number: pass one of its data sets, "
            f"{_CALL}(data[{name!r}], batch_size), or the list of its values, {_CALL}(list(data.values()), batch_size)"
        )
    if isinstance(dataset, DataLoader):
        raise TypeError(f"a DataLoader makes batches itself: pass its data set, {line_for(dataset)}")
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        made = "the data set that it makes" if callable(dataset) else "an iterable data set"
        raise TypeError(
            f"from_dataset needs a map-style data set (__len__ and __getitem__), got {dataset!r:.80} of type {kind}. "
            f"Pass a list of samples, {_CALL}(list(samples), batch_size); {made} goes to "
            "DeterministicAugmenter(data, transform, num_processes) itself, if it gives batches"
        )
    _refuse_replaced_items(dataset)


def refuse_beside(
    batch_size: Any, shuffle: Any, drop_last: Any, sampler: Any, weights: Any, batch_sampler: Any
) -> None:
    """Arguments of `from_dataset` that say the same thing twice.

    Raises:
        TypeError: there are any, or none that says how large a batch is.
    """
    orders = {"batch_sampler": batch_sampler, "sampler": sampler, "weights": weights}
    given = [name for name, value in orders.items() if value is not None]
    if shuffle:
        given.append("shuffle=True")
    if len(given) > 1:
        raise TypeError(f"each of {' and '.join(given)} says the order: pass one of them to {_CALL}")
    if batch_sampler is None and batch_size is None:
        raise TypeError(f"how many samples has a batch? Pass {_CALL}(dataset, batch_size)")
    if batch_sampler is not None and (batch_size is not None or drop_last):
        which = "batch_size" if batch_size is not None else "drop_last"
        raise TypeError(f"batch_sampler gives whole batches, so that {which} has no effect: leave it out")


def refuse_as_loader(loader: Any) -> None:
    """What `DeterministicAugmenter` cannot take.

    Raises:
        TypeError: it gives no batches.
    """
    if inspect.isgenerator(loader) or inspect.isasyncgen(loader):
        raise TypeError(
            f"{loader!r} is a generator object, which cannot be copied to other processes or started again. "
            "Pass the function that makes it: DeterministicAugmenter(make_batches, ...) and not make_batches()."
        )
    if isinstance(loader, (str, bytes, os.PathLike)):
        raise TypeError(
            f"{loader!r} is a path, and its letters are no batches: pass a loader that reads what is there, "
            f"DeterministicAugmenter(MyLoader({loader!r}), transform, num_processes)"
        )
    kind = loader if isinstance(loader, type) else type(loader)
    gives_batches = hasattr(kind, "__next__") or hasattr(kind, "__iter__") or hasattr(loader, "__iter__")
    if not gives_batches and hasattr(loader, "__getitem__") and hasattr(loader, "__len__"):
        instance = "dataset" if kind is not loader else f"{kind.__name__}(...)"
        raise TypeError(f"{kind.__name__} is a map-style data set; use {_CALL}({instance}, batch_size, ...)")
    _refuse_replaced_items(loader)


def called_without_arguments(make_loader: Any) -> Any:
    """The loader that a callable makes.

    Raises:
        TypeError: a class that needs arguments.
        Exception: whatever it raises.
    """
    if isinstance(make_loader, type):
        try:
            inspect.signature(make_loader).bind()
        except ValueError:  # of a class without a signature
            pass
        except TypeError as error:
            name = make_loader.__name__
            raise TypeError(
                f"{name} is a class, which is called to make the loader, and it needs arguments ({error}): pass a function that "
                f"gives them, DeterministicAugmenter(lambda: {name}(...), transform, num_processes)"
            ) from None
    return make_loader()


def line_for(loader: Any) -> str:
    """What shares a torch DataLoader's samples among all workers; empty for anything else."""
    if not isinstance(loader, DataLoader):
        return ""
    return f"{_CALL}(loader.dataset, batch_size={loader.batch_size}, drop_last={loader.drop_last})"


def flag(what: str, value: Any) -> bool:
    """True or False; None is False, as for torch's DataLoader. TypeError: a text, which would be True whatever it says."""
    if isinstance(value, str):
        raise TypeError(f"{what} must be True or False, got {value!r}")
    return bool(value)


def loses_its_place(loader: Any) -> bool:
    """Whether its own state does not say all of where it stands: a shuffle buffer of Hugging Face's streaming data sets is
    filled anew on resuming."""
    streams = (stream for part in _wrapped(loader) for stream in _streams_in(part))
    return any(type(stream).__name__ == "BufferShuffledExamplesIterable" for stream in streams)


def _streams_in(loader: Any) -> Iterator[Any]:
    left = [getattr(loader, "_ex_iterable", None)]
    while left:
        part = left.pop()
        if type(part).__module__.partition(".")[0] == "datasets":
            yield part
            for value in vars(part).values():
                left.extend(value if isinstance(value, list) else [value])


def _refuse_replaced_items(data: Any) -> None:
    for part in _wrapped(data):
        if any(
            kind.__name__ == "SmartCacheDataset" and kind.__module__.startswith("monai.") for kind in type(part).__mro__
        ):
            raise TypeError(
                "MONAI's SmartCacheDataset replaces its items in the process that calls update_cache(), and the copies in "
                "workers keep those that they began with: most of the data would never be trained on. Use "
                "monai.data.CacheDataset(data, transform), or PersistentDataset(data, transform, cache_dir=...)"
            )


def _wrapped(data: Any) -> Iterator[Any]:
    """A data set or loader, and what it wraps."""
    left, seen = [data], set()
    while left:
        part = left.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        attributes = getattr(part, "__dict__", {})
        several = attributes.get("datasets")
        left += [attributes.get("dataset"), *(several if isinstance(several, (list, tuple)) else ())]
