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
from typing import Any

import torch

from detaug.objects.walking import attributes_of, paths_of
from detaug.pipeline.copying.errors import check_kept, why_not
from detaug.pipeline.copying.generators import GlobalGenerators, Owned, SnapshotCopy
from detaug.pipeline.copying.snapshot import CannotCopy, Snapshot, copied_in, kept_of
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
        keep: names of attributes that are not copied with a transform: caches that may stay, what
            cannot be copied.
        make_anew: makes another such source, for a loader that cannot be copied.

    Raises:
        CannotCopy: (a TypeError) an object cannot be copied; the message names it and says what to
            do.
    """

    def __init__(
        self,
        source: Source,
        transform: Any,
        keep: Collection[str] = (),
        make_anew: Callable[[], Source] | None = None,
    ) -> None:
        self.source = source
        self._make_anew = make_anew
        self._is_given_away = False
        self._in_process: tuple[int, PipelineSnapshot] | None = None
        self.transform = transform
        self.keep = tuple(keep)
        held = {name: getattr(source.loader, name) for name in source.holds_transforms}
        #: The loader's own transforms as well: nnU-Net's loader applies them to each sample.
        self.transforms = {
            "transform": transform,
            **{f"data_loader.{name}": value for name, value in held.items()},
        }
        roots = {"transform": transform, "data_loader": source.loader}
        passes_by = make_anew is not None
        try:
            self.shared_objects = shared = _in_both(self.transforms, source, keep, passes_by)
            loader = {"data_loader": source.loader}
            self.loader_template = Owned(
                (source, shared), loader, keep=keep, passes_by=passes_by, is_untouched=True
            )
            self.transform_template = Owned(
                self.transforms, self.transforms, external=shared, keep=keep, is_untouched=True
            )
        except Exception as error:
            raise CannotCopy(why_not(roots, keep, error)) from error
        #: How many transforms were told not to choose their algorithm by the clock.
        self.settled = self.loader_template.settled + self.transform_template.settled
        self.shared = GlobalGenerators(self.references())

    def check_kept(self) -> None:
        """See `detaug.pipeline.copying.errors.check_kept`."""
        for template in (self.loader_template, self.transform_template):
            parts, kept = template.originals, _kept(template.originals, self.keep)
            paths = paths_of([parts[number] for number, _, _ in kept], template.roots)
            check_kept(
                {
                    f"{paths.get(id(parts[number]), '')}.{name}": value
                    for number, name, value in kept
                }
            )

    def in_this_process(self, seed: Callable[[], None]) -> PipelineSnapshot:
        """With the loader itself where a callable makes it: made in this process once and then
        copied; again for every copy where it cannot be. `seed` seeds the global generators, from
        which the callable may draw.
        """
        factory = self.source
        if not isinstance(factory, LoaderFactory):
            return self

        def make() -> Source:
            seed()
            return factory.made()

        if self._in_process is None or self._in_process[0] != os.getpid():
            source = make()
            try:
                made = PipelineSnapshot(source, self.transform, self.keep)
            except CannotCopy:
                made = PipelineSnapshot(source, self.transform, self.keep, make)
            self._in_process = os.getpid(), made
        return self._in_process[1]

    def references(self) -> list[Any]:
        """Its classes and functions."""
        templates = (self.loader_template, self.transform_template)
        return [each for template in templates for each in (*template.references, *template.kinds)]

    def new_loader(self, only_one: bool = False) -> LoaderCopy:
        """A copy of the loader; `only_one`: see `Snapshot.copy`."""
        if self._make_anew is not None:
            first, self._is_given_away = not self._is_given_away, True
            made = (
                self
                if first
                else PipelineSnapshot(self._make_anew(), self.transform, self.keep, self._make_anew)
            )
            return LoaderCopy(
                made, ((made.source, made.shared_objects), made.loader_template.originals)
            )
        return LoaderCopy(self, self.loader_template.copy(only_one=only_one))


class LoaderCopy(SnapshotCopy):
    """A copy of the loader (`source`), and what the transforms share with it (`shared_objects`)."""

    def __init__(self, pristine: PipelineSnapshot, copy: tuple[Any, list[Any]]) -> None:
        super().__init__(pristine.loader_template, copy)
        self.source: Source
        self.source, self.shared_objects = self.value
        #: As the data set's ``worker_init_fn`` has left them: they hold for all batches of this
        #: copy.
        self.settings = ProcessSettings({})
        _take_over(self.parts, _kept(self.template.originals, pristine.keep))


_Kept = list[tuple[int, str, Any]]


def _kept(parts: list[Any], names: Collection[str]) -> _Kept:
    """Attributes that pass to the next copy: (part, name, value)."""
    return [
        (number, name, getattr(part, name))
        for number, part in enumerate(parts)
        for name in sorted(kept_of(type(part), names))
        if part is not None and hasattr(part, name)
    ]


def _take_over(parts: list[Any], attributes: _Kept) -> None:
    """Give them to a copy, which was made without."""
    for number, name, value in attributes:
        if number < len(parts) and parts[number] is not None:
            object.__setattr__(parts[number], name, value)


class TransformCopies:
    """Copies of `PipelineSnapshot.transforms`: for every batch a fresh one, or always the same one
    where nothing in them can change.
    """

    def __init__(self, pristine: PipelineSnapshot) -> None:
        self._pristine = pristine
        #: From which every batch of the epoch starts.
        self.template = pristine.transform_template
        self.pure = is_pure(self.template)
        self._only: SnapshotCopy | None = None
        self._kept = _kept(self.template.originals, pristine.keep)
        self._epoch: int | None = None

    def is_due(self, epoch: int) -> bool:
        """Whether they need `set_epoch_on_parts` for this epoch."""
        return epoch != self._epoch and bool(self._pristine.transform_template.tellable)

    def set_epoch_on_parts(self, epoch: int, loader: LoaderCopy) -> None:
        """What ``set_epoch`` changes is what every batch of that epoch starts from; it is called on
        a pristine copy.
        """
        pristine, shared = self._pristine, loader.shared_objects
        copy = self.copy_of(pristine.transform_template, loader)
        copy.set_epoch_on_parts(epoch)
        self.template = Owned(copy.value, copy.value, external=shared, keep=pristine.keep)
        self._epoch, self._only = epoch, None

    def fresh(self, loader: LoaderCopy) -> SnapshotCopy:
        """The transforms for one batch that this loader gives."""
        if self._only is not None:
            return self._only
        made = self.copy_of(self.template, loader)
        self._only = made if self.pure else None
        return made

    def copy_of(self, template: Owned, loader: LoaderCopy) -> SnapshotCopy:
        """Return a copy of transforms that were frozen, with what is kept from batch to batch."""
        made = SnapshotCopy(template, template.copy(loader.shared_objects))
        _take_over(made.parts, self._kept)
        return made

    def is_done_with(self, used: SnapshotCopy) -> None:
        """A batch was made with it."""
        self._kept = _kept(used.parts, self._pristine.keep)


def is_pure(template: Snapshot) -> bool:
    """Whether nothing that was met can change: detaug's own transforms and plain data."""
    modules = {kind.__module__ for kind in template.kinds}
    return (
        not template.originals
        and all(module.startswith(_PURE) or module in _DATA for module in modules)
        and not any(isinstance(each, types.FunctionType) for each in template.references)
    )


def _in_both(
    transforms: Mapping[str, Any], source: Source, keep: Collection[str], passes_by: bool
) -> tuple[Any, ...]:
    """Objects that can change and that both the transforms and the loader hold, to communicate
    through them; no transforms, which are copied also where the loader holds them.
    """
    roots = [value for value in transforms.values() if value is not None]
    ours = copied_in(roots, keep) if roots else []
    data = {id(each) for each in ours if _is_data(each)}
    if not data:
        return ()
    apart = [*roots, *(each for each in ours if callable(each))]
    theirs = [each for each in copied_in(source, keep, apart, passes_by) if id(each) in data]
    attributes = {id(attributes_of(each)) for each in theirs}  # reached through their owner alone
    return tuple(each for each in theirs if id(each) not in attributes)


def _is_data(value: Any) -> bool:
    """Whether it can change, and neither calls for a copy of its own nor is seeded."""
    is_other = callable(value) or isinstance(value, (str, bytes, tuple, frozenset, torch.Tensor))
    return not is_other and reseeder_of(type(value)) is None
