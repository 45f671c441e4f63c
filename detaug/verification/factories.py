"""Import a user's factory, call it, and take its result as a source and a transform."""

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

#: Samples in a batch of a data set that comes without a batch size.
BATCH_SIZE = 4
#: Such a data set has this many batches at least; batches of a small one have fewer samples.
_MIN_BATCHES = 4
#: The seed of a pipeline whose augmenter drew its seed, or that comes without an augmenter.
DEFAULT_SEED = 1234


class NotPicklable(UnusableError):
    """The pipeline cannot be sent to other interpreters, which is no failure."""


@dataclass(frozen=True)
class FactoryResult:
    """A new pipeline, with the arguments of its augmenter if the factory returns one.

    Attributes:
        source: the loader or data set.
        transform: None if there is none.
        seed: the augmenter's, unless it was drawn: then None.
        name, num_streams, batches_per_epoch, keep: the augmenter's, else the defaults.
        version: the augmenter's; None: the factory did not return an augmenter.
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
        """Return an augmenter of the pipeline: one rank alone, without the run-time check.

        Args:
            processes: worker processes.
            seed: None: the pipeline's own, else `DEFAULT_SEED`.
            **others: further arguments of the augmenter, which replace those above.

        Raises:
            TypeError, ValueError: these do not go with the pipeline.
        """
        if seed is None:
            seed = self.seed
        if seed is None:
            seed = DEFAULT_SEED
        options = {
            "name": self.name,
            "num_streams": self.num_streams,
            "batches_per_epoch": self.batches_per_epoch,
            "keep": self.keep,
            "seed": seed,
            # Rows compare all batches themselves, and benchmarks measure without the check.
            "check": False,
            "rank": 0,
            "world_size": 1,
            **others,
        }
        return DeterministicAugmenter(self.source, self.transform, processes, **options)


def load_factory(target: str) -> Factory:
    """Return the factory that a command line names.

    Modules are looked for in the current folder as well; a file's own folder is put on the import
    path, as Python does for a script.

    Args:
        target: ``"module:factory"`` or ``"path/to/file.py:factory"``.

    Raises:
        UnusableError: there is no such module, file or factory; the message says which.
    """
    module_or_file, colon, name = target.rpartition(":")
    if not colon or not module_or_file or not name:
        raise UnusableError(
            f"{target!r} is not of the form module:factory or path/to/file.py:factory"
        )
    with users_code(f"{module_or_file}, when it is imported,"):
        if module_or_file.endswith(".py"):
            module = _from_file(Path(module_or_file))
        else:
            module = _from_name(module_or_file)
    try:
        factory: object = attrgetter(name)(module)
    except AttributeError:
        names = ", ".join(_public_callables(module)) or "no callable"
        raise UnusableError(f"there is no {name!r} in {module_or_file}; it has {names}") from None
    if not callable(factory):
        raise UnusableError(f"{target} is not callable: it is {factory!r}")
    return factory


def _public_callables(module: ModuleType) -> list[str]:
    """Return the names of a module's callables, sorted, without private ones."""
    names = []
    for name, value in vars(module).items():
        if callable(value) and not name.startswith("_"):
            names.append(name)
    return sorted(names)


def _import_from(folder: str) -> None:
    """Put a folder first on the import path, if it is not on it."""
    if folder not in map(os.path.abspath, sys.path):
        sys.path.insert(0, folder)


def _from_name(name: str) -> ModuleType:
    """Import a module by its name.

    Raises:
        UnusableError: there is no such module.
    """
    _import_from(os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # An import in the module itself may have failed: that is the user's error.
        is_missing = error.name is not None and f"{name}.".startswith(f"{error.name}.")
        if not is_missing:
            raise
        raise UnusableError(f"there is no module {name!r} here or on the import path") from error


def _from_file(file: Path) -> ModuleType:
    """Import a file, by its own name if that is free.

    Raises:
        UnusableError: there is no such file.
    """
    if not file.is_file():
        raise UnusableError(f"there is no file {str(file)!r}")
    file = file.resolve()
    _import_from(str(file.parent))
    # A file called random.py must not take the standard library's place.
    is_name_taken = file.stem in sys.modules or file.stem in sys.stdlib_module_names
    name = f"detaug_verified_{file.stem}" if is_name_taken else file.stem
    spec = importlib.util.spec_from_file_location(name, file)
    # A file that ends with .py has a loader.
    assert spec is not None
    assert spec.loader is not None
    # Not by `runpy`, which removes the module again: its classes could not be pickled.
    module = importlib.util.module_from_spec(spec)
    # Before it is executed: pickle and dataclasses look up the module that they are in.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    if is_name_taken:
        # Other interpreters cannot import it by that name.
        cloudpickle.register_pickle_by_value(module)
    return module


def call_factory(
    factory: Factory, stateless: bool | None = None, batches_per_epoch: int | None = None
) -> FactoryResult:
    """Call a factory, and return its result as a pipeline.

    Args:
        factory: returns (loader, transform), a map-style data set, (data set, transform) or a
            DeterministicAugmenter.
        stateless: whether the loader is declared stateless; None: as an augmenter declares it, else
            the safe reading.
        batches_per_epoch: where epochs are cut; None: where the augmenter cuts them, else nowhere.

    Raises:
        UnusableError: it raises, ends the program, or returns something else.
    """
    with users_code("the factory"):
        value = factory()
    # Outside: what is wrong with the value is no error of the user's code.
    try:
        if isinstance(value, DeterministicAugmenter):
            return _of_augmenter(value, stateless, batches_per_epoch)
        if _is_map_style(value):
            value = (value, None)
        if isinstance(value, tuple) and len(value) == 2:
            loader, transform = value
            if _is_map_style(loader):
                # Shuffled, as `DeterministicAugmenter.from_dataset` does by default.
                batch_size = max(1, min(BATCH_SIZE, len(loader) // _MIN_BATCHES))
                loader = DatasetSource(loader, batch_size)
            return FactoryResult(resolve_source(loader, stateless, batches_per_epoch), transform)
    except (TypeError, ValueError) as error:
        raise UnusableError(str(error)) from error
    raise UnusableError(
        "the factory must return (loader, transform), where the transform may be None, a map-style "
        "data set, (data set, transform), or a DeterministicAugmenter; it returned "
        f"{_description_of(value)}"
    )


def _description_of(value: Any) -> str:
    """Return what a factory returned, with advice, as the end of a message."""
    text = type(value).__name__
    if isinstance(value, tuple):
        text += f" of {len(value)}"
    if isinstance(value, DataLoader):
        advice = (
            "return its data set, or DeterministicAugmenter.from_dataset(...) with its arguments"
        )
        return f"{text}: {advice}"
    if hasattr(value, "__next__") or hasattr(value, "__iter__"):
        return f"{text}: return (it, None) if it is a loader without a transform"
    return text


@contextmanager
def users_code(action: str) -> Iterator[None]:
    """Turn what the user's code raises into one line, inside the block.

    Args:
        action: begins the line: the import of a module, or the call of a factory.

    Raises:
        UnusableError: the code raises, or ends the program.
    """
    try:
        yield
    except SystemExit as exiting:
        raise UnusableError(
            f"{action} ends the program: sys.exit({exiting.code!r}){_location_of(exiting)}"
        ) from exiting
    except UnusableError:
        raise
    except Exception as error:
        summary = " ".join(describe(error).summary.split())
        raise UnusableError(f"{action} raises {summary}{_location_of(error)}") from error


def _location_of(error: BaseException) -> str:
    """Return the last line of the user's own file in a traceback, as the end of a message."""
    not_the_users = (os.path.dirname(__file__), "<frozen")
    # Frames of this package and of the import system do not help the user.
    frames = traceback.extract_tb(error.__traceback__)
    frames_outside = [frame for frame in frames if not frame.filename.startswith(not_the_users)]
    if not frames_outside:
        return ""
    # The user's file is the first one; those that it calls may be a library's.
    file = frames_outside[0].filename
    line = [frame.lineno for frame in frames_outside if frame.filename == file][-1]
    return f" ({file}:{line})"


def _of_augmenter(
    augmenter: DeterministicAugmenter, stateless: bool | None, batches_per_epoch: int | None
) -> FactoryResult:
    """Return an augmenter's pipeline and arguments, and close it.

    Args:
        augmenter: returned by the factory.
        stateless: None: as the augmenter declares it. A data set's source has no such choice.
        batches_per_epoch: None: the augmenter's.
    """
    setup = augmenter.setup
    source = setup.source
    loader = source
    if stateless is not None and not isinstance(source, DatasetSource):
        loader = source.loader
    # It may have workers; every row starts its own.
    augmenter.close()
    return FactoryResult(
        source=resolve_source(loader, stateless, batches_per_epoch or augmenter.batches_per_epoch),
        transform=augmenter.transform,
        seed=None if setup.is_seed_drawn else augmenter.seed,
        name=augmenter.name,
        num_streams=augmenter.num_streams,
        batches_per_epoch=augmenter.batches_per_epoch,
        keep=tuple(augmenter.keep),
        version=augmenter.version,
    )


def _is_map_style(value: Any) -> bool:
    """Return whether it is a data set with ``__len__`` and ``__getitem__``, and no loader."""
    if isinstance(value, (str, bytes, dict, list, tuple, range, type, IterableDataset)):
        return False
    if not (hasattr(value, "__getitem__") and hasattr(value, "__len__")):
        return False
    if isinstance(value, Dataset):
        return True
    return not (hasattr(value, "__iter__") or hasattr(value, "__next__"))
