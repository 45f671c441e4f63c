"""A search for state of the transforms that is reset after every batch and would change the next.

Every batch starts from the transforms as they were passed. A counter, running statistics or a
curriculum of the user's own therefore stands still: that makes the batches reproducible, and is
another training than the one that was written. So early in a run a batch is made twice more: from
pristine transforms, and from those that the batch before it has left behind, with the same seeds.
If the two differ, the attributes that decide are found by setting them on a pristine copy.

What a transform draws and keeps (MONAI's and TorchIO's do) is overwritten before it is read, so
both makings are equal and end in the same state. If they are equal but end in different states
(a cache, "every tenth batch"), the next batches are made twice more as well, as far as the time
allows.
"""

from __future__ import annotations

import re
import time
import types
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from inspect import getattr_static
from typing import Any, NamedTuple

from detaug.objects.differences import differences, differing_names
from detaug.objects.values import Value, digest_of, text_of, values_in
from detaug.objects.walking import attributes_of, slots_of, walk
from detaug.pipeline.copying.pipeline_snapshot import LoaderCopy, TransformCopies
from detaug.pipeline.copying.snapshot import Snapshot, SnapshotCopy
from detaug.seeding.generators import GENERATORS

#: Makes a batch with a copy of the transforms, and returns its fingerprints by key.
Remake = Callable[[SnapshotCopy], dict[str, str]]

#: How many batches in a row are made from what the one before has left behind.
_MOST_BATCHES = 32
#: All but the first may take this long (seconds) ...
_ALLOWANCE = 0.1
#: ... or this share of the time in which batches were made.
_SHARE = 0.01
#: How often a batch is made to find the attributes that decide.
_MOST_SEARCHES = 60
#: How many of these attributes are named.
_MOST_NAMED = 8
#: By class: attributes that are shuffled in place at every call. Whatever order a batch begins
#: with, it gets a random one.
_SHUFFLED = {
    "ApplyRandomBinaryOperatorTransform": ".channel_idx",
    "RemoveRandomConnectedComponentFromOneHotEncodingTransform": ".channel_idx",
}


class Attribute(NamedTuple):
    """An attribute of an object in the transforms.

    Attributes:
        owner: the object's path.
        label: how the attribute is written after that path.
    """

    owner: str
    label: str


class CarriedState:
    """The search in one process's first batches.

    Args:
        transforms: from which copies are made.
        keep: names of attributes that the user lets pass from batch to batch.
        ignore: keys of batches that may differ.
        log: logs a message for the user.
    """

    def __init__(
        self,
        transforms: TransformCopies,
        keep: Collection[str],
        ignore: Collection[str],
        log: Callable[[str], None],
    ) -> None:
        self._transforms = transforms
        self._keep = keep
        self._ignore = ignore
        self._log = log
        self._pristine: Snapshot | None = None
        self._left_behind: Snapshot | None = None
        #: The copies that made the batch before.
        self._used: SnapshotCopy | None = None
        self._loader: LoaderCopy | None = None
        self._num_batches = 0
        self._work_seconds = 0.0
        self._spent_seconds = 0.0
        self._last_seconds = 0.0
        #: No further batch is to be added.
        self.is_done = False

    def add(self, loader: LoaderCopy, used: SnapshotCopy, remake: Remake, seconds: float) -> None:
        """Take in a batch that was just made, and remake it if that is due.

        Args:
            loader: the copy of the loader that gave it.
            used: the copy of the transforms that made it.
            remake: makes it again.
            seconds: what making it took.
        """
        self._work_seconds += seconds
        pristine = self._transforms.snapshot
        if self._left_behind is None or self._pristine is not pristine:
            # After `set_epoch` batches start from other transforms: begin again.
            self._pristine = pristine
            self._leave_behind(used, loader)
            return
        if not self._is_affordable():
            return
        start = time.perf_counter()
        self._compare(_Makings(self._transforms, pristine, self._left_behind, loader, remake))
        self._last_seconds = time.perf_counter() - start
        self._spent_seconds += self._last_seconds

    def _is_affordable(self) -> bool:
        # The first comparison is made whatever it costs, because it finds most of such state.
        if self._num_batches == 0:
            return True
        allowed = max(_ALLOWANCE, _SHARE * self._work_seconds)
        return self._spent_seconds + self._last_seconds <= allowed

    def _compare(self, makings: _Makings) -> None:
        # A copy for each making, which changes it.
        pristine = makings.pristine()
        carried = self._carried(makings)
        expected = makings.fingerprints(pristine)
        fingerprints = makings.fingerprints(carried)
        self._num_batches += 1
        if differing_names(expected, fingerprints, self._ignore):
            self.is_done = True
            # A batch that differs from itself is for the run-time check to report.
            repeated = makings.fingerprints(makings.pristine())
            if not differing_names(expected, repeated, self._ignore):
                self._report(makings, expected)
            return
        # Equal states lead to equal batches from now on: there is nothing more to find.
        if self._num_batches == _MOST_BATCHES or _texts(pristine) == _texts(carried):
            self.is_done = True
            return
        self._leave_behind(carried, makings.loader)

    def _leave_behind(self, used: SnapshotCopy, loader: LoaderCopy) -> None:
        """Keep the copies that made a batch, and the state that it has left in the transforms."""
        self._used = used
        self._loader = loader
        self._left_behind = self._snapshot_of(used, loader)

    def _carried(self, makings: _Makings) -> SnapshotCopy:
        """Return the transforms as the batch before has left them."""
        used = self._used
        if used is None or self._loader is not makings.loader:
            return makings.left_behind()
        # The objects themselves and no copies: a descriptor, or a table in a module, may keep their
        # state by the object.
        for name, root in used.value.items():
            used.find_generators_again(name, root)
        self._transforms.carry_on_to(used)
        return used

    def _snapshot_of(self, used: SnapshotCopy, loader: LoaderCopy) -> Snapshot:
        """Return the transforms as a batch has left them; what cannot be copied is shared."""
        return Snapshot(
            used.value,
            roots=used.value,
            replacements=loader.common_objects,
            keep=self._keep,
            share_uncopyable=True,
        )

    def _report(self, makings: _Makings, expected: Mapping[str, str]) -> None:
        search = _Search(makings, expected, self._ignore, self._num_batches)
        attributes = search.deciding()
        for attribute in attributes[:_MOST_NAMED]:
            self._log(search.remark_on(attribute))
        if not attributes and not search.has_left_out:
            self._log(
                "the transforms carry something from batch to batch that no attribute shows; every "
                "batch starts without it, and would be another one with it. To follow the training "
                "use set_epoch(epoch) or detaug.current().step"
            )


class _Makings:
    """Copies of the transforms, and the batch that is made with each of them."""

    def __init__(
        self,
        transforms: TransformCopies,
        pristine: Snapshot,
        left_behind: Snapshot,
        loader: LoaderCopy,
        remake: Remake,
    ) -> None:
        self._transforms = transforms
        self._pristine = pristine
        self._left_behind = left_behind
        self._remake = remake
        self.loader = loader

    def pristine(self) -> SnapshotCopy:
        """Return a copy of the transforms from which every batch starts."""
        return self._transforms.copy_of(self._pristine, self.loader)

    def left_behind(self) -> SnapshotCopy:
        """Return a copy of the transforms as the batch before has left them."""
        return self._transforms.copy_of(self._left_behind, self.loader)

    def fingerprints(self, copy: SnapshotCopy) -> dict[str, str]:
        """Return the fingerprints of the batch made with a copy, or what making it raised."""
        try:
            return self._remake(copy)
        except Exception as error:
            # As a fingerprint: with the other transforms the batch may be made, or not either.
            return {"": f"{type(error).__name__}: {error}"}


class _Search:
    """The search for the attributes that decide, by setting some of them on a pristine copy.

    Args:
        makings: the batch made with copies.
        expected: its fingerprints from pristine transforms.
        ignore: keys of batches that may differ.
        num_batches: how many batches in a row have left the state behind.
    """

    def __init__(
        self,
        makings: _Makings,
        expected: Mapping[str, str],
        ignore: Collection[str],
        num_batches: int,
    ) -> None:
        self._end = "when it ended" if num_batches == 1 else f"after {num_batches} batches"
        self._makings = makings
        self._expected = expected
        self._ignore = ignore
        self._room = _MOST_SEARCHES
        pristine = makings.pristine()
        left_behind = makings.left_behind()
        self._owners = dict(walk(pristine.value.items()))
        self._left_behind = dict(walk(left_behind.value.items()))
        self._before = _values(pristine)
        self._after = _values(left_behind)
        #: Attributes that mean nothing were among the changed ones.
        self.has_left_out = False
        self._new_generators = self._paths_of_new_generators()
        self._changed: dict[Attribute, str] = {}
        for path, value, other_value in differences(self._before, self._after, compared_by=_text):
            if isinstance(value, Value):
                self._add(path, value)
            else:
                self._add(path, other_value)

    def _add(self, path: str, value: Value) -> None:
        attribute = Attribute(value.owner, value.attribute)
        if attribute.owner not in self._owners:
            # It lies in an object that the batch has made, which is another object's attribute.
            return
        is_shuffled = _is_shuffled(self._owners[attribute.owner], attribute.label)
        if is_shuffled or self._leads_to_new_generator(attribute):
            self.has_left_out = True
            return
        self._changed.setdefault(attribute, path)

    def _paths_of_new_generators(self) -> list[str]:
        """Return the paths of generators that a batch has made: every batch makes its own."""
        paths = []
        for path, value in self._left_behind.items():
            is_new = not isinstance(self._owners.get(path), GENERATORS)
            if isinstance(value, GENERATORS) and is_new:
                paths.append(path)
        return paths

    def _leads_to_new_generator(self, attribute: Attribute) -> bool:
        start = f"{attribute.owner}{attribute.label}"
        return any(
            path == start or path.startswith((f"{start}.", f"{start}["))
            for path in self._new_generators
        )

    def deciding(self) -> list[Attribute]:
        """Return the attributes without whose change the batch would be the same."""
        changed = list(self._changed)
        # If all changes together make the same batch, the cause is not in an attribute.
        if not changed or not self._differs(changed):
            return []
        return self._deciding_among(changed)

    def _deciding_among(self, attributes: list[Attribute]) -> list[Attribute]:
        """Return the attributes that decide, among some that together make another batch."""
        if len(attributes) == 1 or self._room <= 0:
            return attributes
        # Bisected, because each trial makes a batch, and usually few of many attributes decide.
        middle = len(attributes) // 2
        deciding = []
        for part in (attributes[:middle], attributes[middle:]):
            if self._differs(part):
                deciding += self._deciding_among(part)
        # If neither half makes another batch alone, attributes of both decide together.
        return deciding or attributes

    def _differs(self, attributes: list[Attribute]) -> bool:
        self._room -= 1
        # New copies for each trial: attributes of the second are set in the first.
        copy = self._makings.pristine()
        left_behind = self._makings.left_behind()
        owners = dict(walk(copy.value.items()))
        others = dict(walk(left_behind.value.items()))
        for owner, label in attributes:
            if owner not in owners or owner not in others:
                continue
            # An attribute that cannot be set stays as it is in the pristine copy.
            with suppress(AttributeError, TypeError, ValueError):
                _give(owners[owner], label, others[owner])
        # What was set may have brought generators along, which are to be seeded like the others.
        for name, root in copy.value.items():
            copy.find_generators_again(name, root)
        fingerprints = self._makings.fingerprints(copy)
        return bool(differing_names(self._expected, fingerprints, self._ignore))

    def remark_on(self, attribute: Attribute) -> str:
        """Return the message about an attribute that decides."""
        path = self._changed[attribute]
        owner = self._owners[attribute.owner]
        name = f"{_name_of(owner)}{_readable(path.removeprefix(attribute.owner))}"
        if path.endswith(".len()"):
            name = f"len({name.removesuffix('.len()')})"
        first = _words_at(path, self._before) or _class_value(owner, attribute.label)
        last = _words_at(path, self._after) or "not set"
        start = f"from {first}" if first else "without it"
        text = (
            f"{name} was {first or 'not set'} when the batch began and {last} {self._end}; every "
            f"batch starts {start}, and would differ if the change carried over. To follow the "
            "training use set_epoch(epoch) or detaug.current().step"
        )
        keep = attribute.label.removeprefix(".")
        if not keep.isidentifier() or isinstance(owner, types.FunctionType):
            return text
        return f'{text}; to let it carry over: keep=("{keep}",)'


def _is_shuffled(owner: Any, label: str) -> bool:
    for kind in type(owner).__mro__:
        if not kind.__module__.startswith("batchgeneratorsv2."):
            continue
        if _SHUFFLED.get(kind.__name__) == label:
            return True
    return False


def _values(copy: SnapshotCopy) -> dict[str, Value]:
    return dict(values_in(copy.value.items(), objects=True))


def _texts(copy: SnapshotCopy) -> dict[str, str]:
    return {path: value.text for path, value in _values(copy).items()}


def _text(value: Any) -> str:
    return value.text if isinstance(value, Value) else "absent"


def _words_at(path: str, values: Mapping[str, Value]) -> str:
    """Return the value at a path, in words; empty if no value has that path."""
    if path in values:
        return values[path].text
    length = values.get(f"{path}.len()")
    return "" if length is None else f"a container of {length.text} items"


def _class_value(owner: Any, label: str) -> str:
    """Return the plain value that an object's class has for an attribute; "" if there is none."""
    value = getattr_static(type(owner), label.removeprefix("."), None)
    if value is None:
        return ""
    return text_of(value, digest_of) or ""


def _name_of(owner: Any) -> str:
    """Return the name of a function, or of an object's class."""
    kind = owner if isinstance(owner, types.FunctionType) else type(owner)
    return str(kind.__qualname__)


def _readable(label: str) -> str:
    """Return a label without marks of closures (``.<n>``) and of what has no name (``.~0``)."""
    without_numbers = re.sub(r"\.~\d+", "", label)
    return re.sub(r"^\.<(\w+)>", r".\1", without_numbers)


def _give(owner: Any, label: str, other: Any) -> None:
    """Set on an object the attribute that another one has, bypassing the class's own setter."""
    name = label.removeprefix(".")
    if isinstance(owner, types.FunctionType) and name.startswith("<"):
        index = owner.__code__.co_freevars.index(name.strip("<>"))
        cells = owner.__closure__ or ()
        other_cells = other.__closure__ or ()
        cells[index].cell_contents = other_cells[index].cell_contents
    elif isinstance(owner, types.FunctionType):
        setattr(owner, name, getattr(other, name))
    elif name.isidentifier():
        attributes = {**slots_of(other), **(attributes_of(other) or {})}
        if name in attributes:
            object.__setattr__(owner, name, attributes[name])
        else:
            object.__delattr__(owner, name)
