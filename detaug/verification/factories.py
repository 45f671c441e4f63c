"""From ``module:factory`` to the factory, and from its result to a source, a transform, and an
augmenter's arguments.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
from torch.utils.data import DataLoader, Dataset, IterableDataset

from detaug.augmenter.augmenter import DeterministicAugmenter
from detaug.engine.errors_from_workers import describe
from detaug.errors import UnusableError
from detaug.pipeline.sources import DatasetSource, Source, resolve_source

Factory = Callable[[], Any]

#: Samples in a batch of a data set that comes without a batch size; fewer where it is too small for
#: so many batches.
BATCH_SIZE, _BATCHES = 4, 4
#: Of a pipeline whose augmenter has none, or that comes without one.
DEFAULT_SEED = 1234


class NotPicklable(UnusableError):
    """It cannot be sent to other interpreters, which is no failure."""


@dataclass(frozen=True)
class FactoryResult:
    """A freshly made pipeline, with the arguments of its augmenter, if it is one (then `version` is
    not None), else the defaults. A seed that was drawn is None.
    """

    source: Source
    transform: Any
    seed: Any = None
    name: str = ""
    num_streams: int | None = None
    batches_per_epoch: int | None = None
    keep: tuple[str, ...] = ()
    version: str | None = None

    def augmenter(
        self, processes: int = 0, seed: Any = None, **others: Any
    ) -> DeterministicAugmenter:
        """An augmenter of the pipeline, alone and without the run-time check, but for `others`.
        Without a seed it has its own, or `DEFAULT_SEED`.

        Raises:
            TypeError, ValueError: these do not go with the pipeline.
        """
        own = ("name", "num_streams", "batches_per_epoch", "keep")
        options: dict[str, Any] = {name: getattr(self, name) for name in own}
        options["seed"] = next(each for each in (seed, self.seed, DEFAULT_SEED) if each is not None)
        options |= {"check": False, "rank": 0, "world_size": 1, **others}
        return DeterministicAugmenter(self.source, self.transform, processes, **options)


def load_factory(target: str) -> Factory:
    """The factory that a command line names.

    Modules are looked for in the current folder as well; a file's own folder is put on the import
    path, as Python does for a script.

    Raises:
        UnusableError: there is no such module, file or factory; the message says which.
    """
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise UnusableError(
            f"{target!r} is not of the form module:factory or path/to/file.py:factory"
        )
    with users_code(f"{place}, when it is imported,"):
        module = _from_file(Path(place)) if place.endswith(".py") else _from_name(place)
    try:
        found: object = attrgetter(name)(module)
    except AttributeError:
        names = sorted(
            each for each, value in vars(module).items() if callable(value) and each[0] != "_"
        )
        raise UnusableError(
            f"there is no {name!r} in {place}; it has {', '.join(names) or 'no callable'}"
        ) from None
    if not callable(found):
        raise UnusableError(f"{target} is not callable: it is {found!r}")
    return found


def _import_from(folder: str) -> None:
    if folder not in map(os.path.abspath, sys.path):
        sys.path.insert(0, folder)


def _from_name(name: str) -> ModuleType:
    _import_from(os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise UnusableError(f"there is no module {name!r} here or on the import path") from error


def _from_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise UnusableError(f"there is no file {str(file)!r}")
    file = file.resolve()
    _import_from(str(file.parent))
    taken = file.stem in sys.modules or file.stem in sys.stdlib_module_names
    name = f"detaug_verified_{file.stem}" if taken else file.stem
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None  # for it ends with .py
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    if taken:  # other interpreters cannot import it under that name
        cloudpickle.register_pickle_by_value(module)
    return module


def call_factory(
    factory: Factory, stateless: bool | None = None, batches_per_epoch: int | None = None
) -> FactoryResult:
    """What a factory gives.

    Args:
        factory: returns (loader, transform), a map-style data set, (data set, transform) or a
            DeterministicAugmenter.
        stateless: what the loader is declared to be; None: as an augmenter has it, else the safe
            reading.
        batches_per_epoch: where epochs are cut; None: where the augmenter cuts them, else nowhere.

    Raises:
        UnusableError: it raises, ends the program, or gives something else.
    """
    with users_code("the factory"):
        made = factory()
    try:
        if isinstance(made, DeterministicAugmenter):
            return _of_augmenter(made, stateless, batches_per_epoch)
        if _is_map_style(made):
            made = made, None
        if isinstance(made, tuple) and len(made) == 2:
            loader, transform = made
            if _is_map_style(
                loader
            ):  # as `DeterministicAugmenter.from_dataset` makes its source, shuffled
                loader = DatasetSource(loader, max(1, min(BATCH_SIZE, len(loader) // _BATCHES)))
            return FactoryResult(resolve_source(loader, stateless, batches_per_epoch), transform)
    except (TypeError, ValueError) as error:
        raise UnusableError(str(error)) from error
    what = type(made).__name__ + (f" of {len(made)}" if isinstance(made, tuple) else "")
    if isinstance(made, DataLoader):
        what += (
            ": return its data set, or DeterministicAugmenter.from_dataset(...) with its arguments"
        )
    elif hasattr(made, "__next__") or hasattr(made, "__iter__"):
        what += ": return (it, None) if it is a loader without a transform"
    raise UnusableError(
        "the factory must return (loader, transform), where the transform may be None, a map-style "
        "data set, (data set, "
        f"transform), or a DeterministicAugmenter; it returned {what}"
    )


@contextmanager
def users_code(what: str) -> Iterator[None]:
    """Inside, a module is imported or a factory called: what goes wrong there is one line.

    Raises:
        UnusableError: it raises, or ends the program.
    """
    try:
        yield
    except SystemExit as leaving:
        raise UnusableError(
            f"{what} ends the program: sys.exit({leaving.code!r}){_place(leaving)}"
        ) from leaving
    except UnusableError:
        raise
    except Exception as error:
        raise UnusableError(
            f"{what} raises {' '.join(describe(error).summary.split())}{_place(error)}"
        ) from error


def _place(error: BaseException) -> str:
    """The last line of the user's own file on the way to it, for a message's end."""
    ours = (os.path.dirname(__file__), "<frozen")
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(ours)
    ]
    own = [frame for frame in frames if frame.filename == frames[0].filename]
    return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""


def _of_augmenter(
    augmenter: DeterministicAugmenter, stateless: bool | None, batches_per_epoch: int | None
) -> FactoryResult:
    inside = augmenter.setup
    source = inside.source
    loader = source if stateless is None or isinstance(source, DatasetSource) else source.loader
    augmenter.close()  # its workers, if it has any: every row starts its own
    return FactoryResult(
        resolve_source(loader, stateless, batches_per_epoch or augmenter.batches_per_epoch),
        augmenter.transform,
        None if inside.drew_its_seed else augmenter.seed,
        augmenter.name,
        augmenter.num_streams,
        augmenter.batches_per_epoch,
        tuple(augmenter.keep),
        augmenter.version,
    )


def _is_map_style(value: Any) -> bool:
    """Whether it is a data set with ``__len__`` and ``__getitem__``, and not a loader of batches."""
    if isinstance(value, (str, bytes, dict, list, tuple, range, type, IterableDataset)):
        return False
    if not (hasattr(value, "__getitem__") and hasattr(value, "__len__")):
        return False
    return isinstance(value, Dataset) or not (
        hasattr(value, "__iter__") or hasattr(value, "__next__")
    )
