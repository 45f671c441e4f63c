"""What is no data set and no loader though it looks like one, and arguments as other libraries spell them: each is answered
with the line to write."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
    default_convert,
)

_CALL = "DeterministicAugmenter.from_dataset"
#: Arguments of `from_dataset` that say an order, beside ``shuffle``.
ORDERS = ("batch_sampler", "sampler", "weights")
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
    """TypeError: `DeterministicAugmenter` does not have these arguments."""
    for name, value in arguments.items():
        instead = _INSTEAD.get(name, "").format(value=repr(value))
        near = get_close_matches(name, known, 1)
        advice = instead or (f"did you mean {near[0]}=?" if near else "help(DeterministicAugmenter) lists what it has")
        raise TypeError(f"DeterministicAugmenter has no argument {name}={value!r:.60}: {advice}")


def refuse_as_dataset(dataset: Any) -> None:
    """TypeError: it is no map-style data set, or one that cannot be shared among processes."""
    kind = type(dataset).__name__
    if isinstance(dataset, type):
        raise TypeError(
            f"{dataset.__name__} is a class: {_CALL}({dataset.__name__}(...), batch_size) takes an instance of it"
        )
    _refuse_path(
        dataset, "samples", f"a data set that reads what is there, {_CALL}(MyDataset({dataset!r}), batch_size)"
    )
    if isinstance(dataset, Mapping) and dataset and 0 not in dataset:
        name = next(iter(dataset))
        raise TypeError(
            f"this {kind} has samples by name, and not by number: pass one of its data sets, "
            f"{_CALL}(data[{name!r}], batch_size), or the list of its values, {_CALL}(list(data.values()), batch_size)"
        )
    _refuse_torch_loader(dataset)
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        made = "the data set that it makes" if callable(dataset) else "what gives batches by itself"
        raise TypeError(
            f"from_dataset needs a map-style data set (__len__ and __getitem__), got {dataset!r:.80} of type {kind}. "
            f"Pass a list of samples, {_CALL}(list(samples), batch_size); {made} goes to "
            "DeterministicAugmenter(data, transform, num_processes) itself"
        )
    _refuse_replaced_items(dataset)


def _refuse_path(value: Any, what: str, instead: str) -> None:
    if isinstance(value, (str, bytes, os.PathLike)):
        raise TypeError(f"{value!r} is a path, and its letters are no {what}: pass {instead}")


def refuse_beside(batch_size: Any, shuffle: Any, drop_last: Any, orders: Mapping[str, Any]) -> None:
    """TypeError: arguments of `from_dataset`, its `ORDERS` among them, say one thing twice, or not how large a batch is."""
    given = _given(shuffle, orders)
    if len(given) > 1:
        raise TypeError(f"each of {' and '.join(given)} says the order: pass one of them to {_CALL}")
    batch_sampler = orders["batch_sampler"]
    if batch_sampler is None:
        _refuse_no_size(batch_size)
    if batch_sampler is not None and (batch_size is not None or drop_last):
        which = "batch_size" if batch_size is not None else "drop_last"
        raise TypeError(f"batch_sampler gives whole batches, so that {which} has no effect: leave it out")


def refuse_beside_iterable(batch_size: Any, shuffle: Any, orders: Mapping[str, Any]) -> None:
    """TypeError: arguments of `from_dataset` that an iterable data set leaves without effect, or as `refuse_beside`."""
    if given := _given(shuffle, orders):
        raise TypeError(
            f"an IterableDataset gives its samples in an order of its own, so that {given[0]} has no effect: leave it out, or "
            "pass a map-style data set"
        )
    _refuse_no_size(batch_size)


def _given(shuffle: Any, orders: Mapping[str, Any]) -> list[str]:
    return [*(name for name, value in orders.items() if value is not None), *(["shuffle=True"] if shuffle else [])]


def _refuse_no_size(batch_size: Any) -> None:
    if batch_size is None:
        raise TypeError(f"how many samples has a batch? Pass {_CALL}(dataset, batch_size)")


def refuse_as_loader(loader: Any) -> None:
    """TypeError: `DeterministicAugmenter` cannot take it, for it gives no batches."""
    if inspect.isgenerator(loader) or inspect.isasyncgen(loader):
        raise TypeError(
            f"{loader!r} is a generator object, which cannot be copied to other processes or started again. "
            "Pass the function that makes it: DeterministicAugmenter(make_batches, ...) and not make_batches()."
        )
    line = f"DeterministicAugmenter(MyLoader({loader!r}), transform, num_processes)"
    _refuse_path(loader, "batches", f"a loader that reads what is there, {line}")
    _refuse_replaced_items(loader)
    _refuse_torch_loader(loader)
    kind = loader if isinstance(loader, type) else type(loader)
    gives_batches = hasattr(kind, "__next__") or hasattr(kind, "__iter__") or hasattr(loader, "__iter__")
    if not gives_batches and hasattr(loader, "__getitem__") and hasattr(loader, "__len__"):
        instance = "dataset" if kind is not loader else f"{kind.__name__}(...)"
        raise TypeError(f"{kind.__name__} is a map-style data set; use {_CALL}({instance}, batch_size, ...)")


def called_without_arguments(make_loader: Any) -> Any:
    """The loader that a callable makes. TypeError: a class that needs arguments."""
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


def _refuse_torch_loader(loader: Any) -> None:
    """Raises TypeError with the line that does what a torch DataLoader does."""
    if not isinstance(loader, DataLoader):
        return
    arguments = ["loader.dataset"]
    if loader.batch_size is not None:
        arguments += [f"batch_size={loader.batch_size}", f"drop_last={loader.drop_last}"]
    elif loader.batch_sampler is not None:
        arguments.append("batch_sampler=loader.batch_sampler")
    else:
        arguments += ["batch_size=1", "collate_fn=lambda batches: batches[0]"]
    says_order = loader.batch_size is None and loader.batch_sampler is not None
    if isinstance(loader.sampler, SequentialSampler) and not says_order:
        arguments.append("shuffle=False")
    elif not (says_order or isinstance(loader.sampler, RandomSampler) or isinstance(loader.dataset, IterableDataset)):
        arguments.append("sampler=loader.sampler")
    if loader.collate_fn not in (default_collate, default_convert):
        arguments.append("collate_fn=loader.collate_fn")
    if loader.worker_init_fn is not None:
        arguments.append("worker_init_fn=loader.worker_init_fn")
    raise TypeError(
        f"a DataLoader makes batches itself, in an order and with workers of its own: pass its data set, {_CALL}"
        f"({', '.join(arguments)}, num_processes={loader.num_workers})"
    )


def flag(what: str, value: Any) -> bool:
    """True or False; None is False, as for torch's DataLoader. TypeError: a text, which would be True whatever it says."""
    if isinstance(value, str):
        raise TypeError(f"{what} must be True or False, got {value!r}")
    return bool(value)


def loses_its_place(loader: Any) -> bool:
    """Whether its own state does not say all of where it stands: a shuffle buffer of Hugging Face's streaming data sets is
    filled anew on resuming."""
    left = [getattr(part, "_ex_iterable", None) for part in _wrapped(loader)]
    while left:
        part = left.pop()
        if type(part).__name__ == "BufferShuffledExamplesIterable":
            return True
        if type(part).__module__.partition(".")[0] == "datasets":
            for value in vars(part).values():
                left.extend(value if isinstance(value, list) else [value])
    return False


def _refuse_replaced_items(data: Any) -> None:
    for part in _wrapped(data):
        kinds = type(part).__mro__
        if any(kind.__name__ == "SmartCacheDataset" and kind.__module__.startswith("monai.") for kind in kinds):
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
