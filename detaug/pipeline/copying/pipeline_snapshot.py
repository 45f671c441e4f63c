"""A source and its transforms as the user passed them, and the copies that make batches.

Three kinds of object, three rules:
- transforms: a fresh copy for every batch;
- a stateless loader: one copy per process, whose caches are kept;
- any other loader: one copy per stream, stepped forward in order.

Every generator in them is seeded from the batch (`detaug.pipeline.copying.generators`).
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import torch

from detaug.objects.walking import attributes_of, paths_of
from detaug.pipeline.copying.errors import check_carried, uncopyable_message
from detaug.pipeline.copying.generators import GlobalGenerators
from detaug.pipeline.copying.snapshot import (
    CannotCopy,
    Snapshot,
    SnapshotCopy,
    carried_names,
    copied_in,
)
from detaug.pipeline.sources import LoaderFactory, Source
from detaug.seeding.reseeders import reseeder_of
from detaug.system.process_settings import ProcessSettings

#: Modules whose transforms keep no state and write into no array that they are given: one copy
#: makes all batches.
_PURE = ("detaug.transforms.", "detaug.kernels.")
_DATA = ("builtins", "numpy", "torch", "collections", "functools")


class PipelineSnapshot:
    """A pipeline as the user passed it.

    Args:
        source: where raw batches come from.
        transform: the user's, or None.
        keep: names of attributes that are not copied with a transform: caches that may stay, and
            objects that cannot be copied.
        loader_factory: makes another such source, for a loader that cannot be copied.
        is_trial: the snapshot only shows that the pipeline can be copied, until `complete` is
            called.

    Raises:
        CannotCopy: (a TypeError) an object cannot be copied; the message names it and says what to
            do.
    """

    def __init__(
        self,
        source: Source,
        transform: Any,
        keep: Collection[str] = (),
        loader_factory: Callable[[], Source] | None = None,
        *,
        is_trial: bool = False,
    ) -> None:
        self.source = source
        self._loader_factory = loader_factory
        self._is_given_away = False
        self._in_process: tuple[int, PipelineSnapshot] | None = None
        self.transform = transform
        self.keep = tuple(keep)
        #: The loader's own transforms as well: nnU-Net's loader applies them to each sample.
        self.transforms = {"transform": transform}
        for name in source.holds_transforms:
            self.transforms[f"data_loader.{name}"] = getattr(source.loader, name)
        shares = loader_factory is not None
        try:
            self.common_objects = _in_both(self.transforms, source, keep, shares)
            self.loader_snapshot = Snapshot(
                (source, self.common_objects),
                roots={"data_loader": source.loader},
                keep=keep,
                share_uncopyable=shares,
                is_untouched=True,
                stores_arrays=False,
            )
            self.transform_snapshot = Snapshot(
                self.transforms,
                roots=self.transforms,
                replacements=self.common_objects,
                keep=keep,
                is_untouched=True,
                stores_arrays=False,
            )
        except Exception as error:
            roots = {"transform": transform, "data_loader": source.loader}
            raise CannotCopy(uncopyable_message(roots, keep, error)) from error
        snapshots = (self.loader_snapshot, self.transform_snapshot)
        #: How many transforms had their choice of an algorithm by the clock switched off.
        self.num_benchmarks_disabled = sum(part.num_benchmarks_disabled for part in snapshots)
        self.shared: GlobalGenerators
        if not is_trial:
            self.complete()

    def complete(self) -> None:
        """Store large arrays as they are now, and find the generators that all copies share.

        Both take long, and nothing needs them before a copy is made.
        """
        self.loader_snapshot.store_arrays()
        self.transform_snapshot.store_arrays()
        # After the snapshots, whose picklers have collected the classes and functions.
        self.shared = GlobalGenerators(self.references())

    def check_carried(self) -> None:
        """Raise CannotCopy if forks would share a file, a socket or a lock through `keep`."""
        for snapshot in (self.loader_snapshot, self.transform_snapshot):
            parts = snapshot.originals
            carried = _carried_attributes(parts, self.keep)
            paths = paths_of([parts[attribute.part] for attribute in carried], snapshot.roots)
            values = {}
            for attribute in carried:
                owner_path = paths.get(id(parts[attribute.part]), "")
                values[f"{owner_path}.{attribute.name}"] = attribute.value
            check_carried(values)

    def in_this_process(self, seed: Callable[[], None]) -> PipelineSnapshot:
        """Return the pipeline with the loader itself, if a callable makes it.

        The callable is called once per process and its loader is copied; if it cannot be copied,
        the callable is called for every copy.

        Args:
            seed: seeds the global generators, from which the callable may draw.
        """
        factory = self.source
        if not isinstance(factory, LoaderFactory):
            return self

        def new_source() -> Source:
            seed()
            return factory.in_this_process()

        # By process: in a fork, the parent's loader has the parent's files and sockets open.
        if self._in_process is None or self._in_process[0] != os.getpid():
            source = new_source()
            try:
                pipeline = PipelineSnapshot(source, self.transform, self.keep)
            except CannotCopy:
                # Not an error here: the callable makes as many loaders as are needed.
                pipeline = PipelineSnapshot(source, self.transform, self.keep, new_source)
            self._in_process = (os.getpid(), pipeline)
        return self._in_process[1]

    def references(self) -> list[Any]:
        """Return the pipeline's classes and functions."""
        values: list[Any] = []
        for snapshot in (self.loader_snapshot, self.transform_snapshot):
            values += snapshot.references
            values += snapshot.kinds
        return values

    def new_loader(self, is_sole_copy: bool = False) -> LoaderCopy:
        """Return a copy of the loader.

        Args:
            is_sole_copy: this process has no other copy of it; see `Snapshot.copy`.
        """
        if self._loader_factory is None:
            return LoaderCopy(self, self.loader_snapshot.copy(is_sole_copy=is_sole_copy))
        # It cannot be copied. The loader that was made together with this object serves once; the
        # user's callable makes another one for each further copy.
        if self._is_given_away:
            factory = self._loader_factory
            pipeline = PipelineSnapshot(factory(), self.transform, self.keep, factory)
        else:
            self._is_given_away = True
            pipeline = self
        value = (pipeline.source, pipeline.common_objects)
        return LoaderCopy(pipeline, (value, pipeline.loader_snapshot.originals))


class LoaderCopy(SnapshotCopy):
    """A copy of the loader (`source`), and the `common_objects` that the transforms use as well."""

    def __init__(self, pipeline: PipelineSnapshot, copy: tuple[Any, list[Any]]) -> None:
        super().__init__(pipeline.loader_snapshot, copy)
        self.source: Source
        # Both were pickled together, so an object that both hold is one object in the copies, too.
        self.source, self.common_objects = self.value
        #: As the data set's ``worker_init_fn`` has left them: they hold for all batches of this
        #: copy.
        self.settings = ProcessSettings({})
        _set_carried(self.parts, _carried_attributes(self.snapshot.originals, pipeline.keep))


class _CarriedAttribute(NamedTuple):
    """An attribute that passes from copy to copy.

    Attributes:
        part: the index of the object that has it.
        name: its name.
        value: its value.
    """

    part: int
    name: str
    value: Any


def _carried_attributes(parts: list[Any], keep: Collection[str]) -> list[_CarriedAttribute]:
    """Return the attributes that pass to the next copy."""
    attributes = []
    for index, part in enumerate(parts):
        if part is None:
            continue
        for name in sorted(carried_names(type(part), keep)):
            if hasattr(part, name):
                attributes.append(_CarriedAttribute(index, name, getattr(part, name)))
    return attributes


def _set_carried(parts: list[Any], attributes: list[_CarriedAttribute]) -> None:
    """Set the attributes on the parts of a copy, which was made without them."""
    for index, name, value in attributes:
        if index < len(parts) and parts[index] is not None:
            # Not by the class's own setter, which may convert the value or refuse it.
            object.__setattr__(parts[index], name, value)


class TransformCopies:
    """The copies of the transforms that make batches.

    Every batch gets a fresh copy, or always the same one if nothing in them can change.
    """

    def __init__(self, pipeline: PipelineSnapshot) -> None:
        self._pipeline = pipeline
        #: The transforms from which every batch of the epoch starts.
        self.snapshot = pipeline.transform_snapshot
        self.pure = is_pure(self.snapshot)
        self._single_copy: SnapshotCopy | None = None
        self._carried = _carried_attributes(self.snapshot.originals, pipeline.keep)
        self._epoch: int | None = None

    def is_due(self, epoch: int) -> bool:
        """Return whether the transforms need `set_epoch_on_parts` for this epoch."""
        return epoch != self._epoch and bool(self._pipeline.transform_snapshot.epoch_aware_parts)

    def set_epoch_on_parts(self, epoch: int, loader: LoaderCopy) -> None:
        """Call ``set_epoch`` on a pristine copy, from which every batch of the epoch starts."""
        copy = self.copy_of(self._pipeline.transform_snapshot, loader)
        copy.set_epoch_on_parts(epoch)
        self.snapshot = Snapshot(
            copy.value,
            roots=copy.value,
            replacements=loader.common_objects,
            keep=self._pipeline.keep,
        )
        self._epoch = epoch
        self._single_copy = None

    def for_batch(self, loader: LoaderCopy) -> SnapshotCopy:
        """Return the transforms for one batch that this loader gives."""
        if self._single_copy is not None:
            return self._single_copy
        copy = self.copy_of(self.snapshot, loader)
        if self.pure:
            self._single_copy = copy
        return copy

    def copy_of(self, snapshot: Snapshot, loader: LoaderCopy) -> SnapshotCopy:
        """Return a copy of a snapshot of the transforms, with the carried attributes."""
        copy = SnapshotCopy(snapshot, snapshot.copy(loader.common_objects))
        self.carry_on_to(copy)
        return copy

    def carry_on_to(self, copy: SnapshotCopy) -> None:
        """Set the attributes that pass from copy to copy."""
        _set_carried(copy.parts, self._carried)

    def carry_on_from(self, used: SnapshotCopy) -> None:
        """Take the attributes that pass to the next copy from one that has made a batch."""
        self._carried = _carried_attributes(used.parts, self._pipeline.keep)


def is_pure(snapshot: Snapshot) -> bool:
    """Return whether nothing in a snapshot can change: detaug's own transforms and plain data."""
    # Generators, and objects with `set_epoch` or carried attributes.
    if snapshot.originals:
        return False
    if any(isinstance(value, types.FunctionType) for value in snapshot.references):
        return False
    modules = {kind.__module__ for kind in snapshot.kinds}
    return all(module.startswith(_PURE) or module in _DATA for module in modules)


def _in_both(
    transforms: Mapping[str, Any], source: Source, keep: Collection[str], share_uncopyable: bool
) -> tuple[Any, ...]:
    """Return the objects that can change and that both the transforms and the loader hold.

    The two may communicate through them. Transforms are not among them: they are copied also if
    the loader holds them.
    """
    roots = [value for value in transforms.values() if value is not None]
    if not roots:
        return ()
    of_transforms = copied_in(roots, keep)
    data = {id(value) for value in of_transforms if _is_data(value)}
    if not data:
        return ()
    # The walk from the loader stops at transforms, or all that they hold would count as shared.
    callables = [value for value in of_transforms if callable(value)]
    of_loader = copied_in(source, keep, roots + callables, share_uncopyable)
    common = [value for value in of_loader if id(value) in data]
    # An object's ``__dict__`` is reached through the object alone.
    attributes = {id(attributes_of(value)) for value in common}
    return tuple(value for value in common if id(value) not in attributes)


def _is_data(value: Any) -> bool:
    """Return whether a value can change, and is neither seeded nor copied by a rule of its own."""
    if callable(value) or isinstance(value, (str, bytes, tuple, frozenset, torch.Tensor)):
        return False
    return reseeder_of(type(value)) is None
