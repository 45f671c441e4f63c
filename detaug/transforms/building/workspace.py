"""The arrays that transforms work on: NumPy inside, which of them may be written to, and volumes
that are read when needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from detaug.transforms.building.checks import checked_array
from detaug.transforms.building.gate import VOXEL_KEYS
from detaug.transforms.building.grids import GRID, VoxelGrid

#: Those of `VOXEL_KEYS` that are images.
IMAGE_KEYS = ("image", "regression_target")
_FLOAT32 = np.dtype(np.float32)
Between = Callable[[int, int], tuple[Sequence[int], Sequence[int]]]


class Workspace:
    """One sample's arrays on their way through transforms.

    The caller's arrays are not written to: the first transform that changes an array makes a new
    one (in one pass, from `source_and_destination`, where it can); that array is *owned*, and later
    transforms work in place. Images are float32 while they are here.

    Several arrays of one role are one array here, joined along their channels. Segmentations of
    several dtypes are joined in one that holds the labels of all, and given back in their own.

    Args:
        arrays: by the caller's names: images and regression targets of shape (C, X, Y) or (C, X, Y,
            Z), floating point; segmentations of such a shape; NumPy arrays, CPU tensors or a
            `LazyVolume`, of which only what is needed is read. Anything else passes through
            unchanged.
        roles: the caller's name -> the role, which is the key here.
        grid: where the voxels lie, if the caller knows.

    Raises:
        TypeError: an image that is not floating point, or something that is no array at all.
        ValueError: a shape with the wrong number of dimensions or an empty axis; arrays of one role
            that cannot be joined, or come back with another number of channels or with labels that
            their own dtype does not hold; an array that is made has the name of one without its
            role.
    """

    def __init__(
        self, arrays: Mapping[str, Any], roles: Mapping[str, str], grid: VoxelGrid | None = None
    ) -> None:
        self._given = arrays
        self._grid = grid
        kept = [name for name in VOXEL_KEYS if name not in roles]
        self._left = {
            name: value for name, value in arrays.items() if value is None or name in kept
        }
        self._arrays = {
            name: value
            for name, value in arrays.items()
            if name not in roles and name not in self._left
        }
        self._owned: set[str] = set()
        self._shapes: Mapping[str, Any] | None = None  # until something is put or removed
        self._checked: dict[str, np.ndarray] = {}
        self._unchanged: dict[str, np.ndarray] = {}
        self._names: dict[str, list[str]] = {}
        for name, role in roles.items():
            if arrays[name] is not None:
                self._names.setdefault(role, []).append(name)
        for role, names in self._names.items():
            value = arrays[names[0]]
            if len(names) > 1 or not isinstance(value, LazyVolume):
                given = {name: checked_array(role, arrays[name]) for name in names}
                self._checked |= given
                value = self._unchanged[role] = _joined(role, given)
            self._arrays[role] = value

    def __contains__(self, key: str) -> bool:
        return self._arrays.get(key) is not None

    def __getitem__(self, key: str) -> Any:
        value = self._arrays[key]
        if isinstance(value, LazyVolume):
            value = value.read_all()
            self.put(key, value)
        return value

    def get(self, key: str) -> Any:
        """The value, or None where there is none."""
        return self[key] if key in self._arrays else None

    def lazy(self, key: str) -> LazyVolume | None:
        """The volume that represents the array until all of its voxels are needed."""
        value = self._arrays.get(key)
        return value if isinstance(value, LazyVolume) else None

    def present(self) -> dict[str, Any]:
        """What is here, as it is; a `LazyVolume` only where nothing of it was read yet."""
        return dict(self._arrays)

    def shapes(self) -> Mapping[str, Any]:
        """The shape of every array, and what else is a plain number, as `Transform.sample` wants
        them.
        """
        if self._shapes is None:
            shapes: dict[str, Any] = {}
            for key, value in self._arrays.items():
                if hasattr(value, "shape"):
                    shapes[key] = tuple(value.shape)
                elif isinstance(value, int):
                    shapes[key] = value
            if self._grid is not None:
                shapes[GRID] = self._grid
            self._shapes = MappingProxyType(shapes)
        return self._shapes

    @property
    def grid(self) -> VoxelGrid | None:
        """Where the voxels lie that are here; None where the caller did not say."""
        return self._grid

    @grid.setter
    def grid(self, grid: VoxelGrid | None) -> None:
        self._grid = grid
        self._shapes = None

    def put(self, key: str, value: Any, *, owned: bool = True) -> None:
        """Set a key to an array that nothing else holds (or, with ``owned=False``, to a view of one
        that something does).
        """
        self._arrays[key], self._shapes = value, None
        self._owned.discard(key)
        if owned:
            self._owned.add(key)

    def put_reshaped(self, key: str, value: np.ndarray) -> None:
        """Set a key to what was made of its array without changing it: a view of that, or a copy."""
        self.put(
            key,
            value,
            owned=key in self._owned or not np.may_share_memory(value, self._arrays[key]),
        )

    def remove(self, key: str) -> None:
        del self._arrays[key]
        self._shapes = None
        self._owned.discard(key)

    def image(self, key: str = "image") -> np.ndarray:
        """The array as `contiguous` has it, to be read: what is not owned is read-only."""
        array = self.contiguous(key)
        if key not in self._owned and array.flags.writeable:
            array = array.view()
            array.flags.writeable = False
        return array

    def labels(self) -> np.ndarray:
        """The segmentation as `image` gives an image, in its own dtype."""
        return self.image("segmentation")

    def label_dtypes(self) -> list[np.dtype[Any]]:
        """Return every dtype that must hold a label which a transform writes.

        Those are the dtypes in which the caller passed segmentations, as long as these are what
        is here: a transform may have made regions of them.
        """
        current = (self.lazy("segmentation") or self["segmentation"]).dtype
        own = self._own_label_dtypes()
        if own and current == np.result_type(*own):
            return own
        return [current]

    def _own_label_dtypes(self) -> list[np.dtype[Any]]:
        names = self._names.get("segmentation", [])
        return [self._checked[name].dtype for name in names if name in self._checked]

    def contiguous(self, key: str) -> np.ndarray:
        """The array itself, C-contiguous (and float32 if it is an image); not to be written to
        unless it is owned.
        """
        array: np.ndarray = self[key]
        kind = _FLOAT32 if key in IMAGE_KEYS else array.dtype
        if array.dtype != kind or not array.flags.c_contiguous:
            array = array.astype(kind, order="C")
            self.put(key, array)
        return array

    def writable(self, key: str) -> np.ndarray:
        """The array, C-contiguous (and float32 if it is an image), to be changed in place: copied
        first if it is not owned.
        """
        source, destination = self.source_and_destination(key)
        if destination is not source:
            destination[...] = source
        return destination

    def source_and_destination(self, key: str) -> tuple[np.ndarray, np.ndarray]:
        """What to read and where to write all of it, for one pass that needs no copy first.

        They are one array when it is owned already; else the destination is new, uninitialised
        memory, and the caller must fill every channel of it.
        """
        source = self.contiguous(key)
        if key in self._owned:
            return source, source
        destination = np.empty_like(source)
        self.put(key, destination)
        return source, destination

    def chosen_channels(
        self, chosen: Collection[int], shaped: Callable[[np.ndarray], np.ndarray] = np.asarray
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """The image's chosen channels as (channel, source, destination); the two are one array
        where it is owned.

        The caller fills each destination. Other channels are copied where they must be. Without
        any, nothing is touched.

        Args:
            shaped: what makes of a channel the view that the caller wants.

        Raises:
            IndexError: a channel that the image does not have.
        """
        if not chosen:
            return
        source, destination = self.source_and_destination("image")
        for c in chosen:
            if not 0 <= c < len(source):
                raise IndexError(
                    f"params name channel {c}, but image has {len(source)} channel(s): 0 to "
                    f"{len(source) - 1}"
                )
        for c in range(len(source)):
            if c in chosen:
                yield c, shaped(source[c]), shaped(destination[c])
            elif destination is not source:
                destination[c] = source[c]

    def result(self) -> dict[str, Any]:
        """All arrays under the caller's names, each of the kind (NumPy or torch) and, for images,
        of the input's dtype.

        An array that no transform changed is the input object itself.
        """
        made = dict(self._left)
        for key in self.present():
            value = self[key]
            if key in VOXEL_KEYS and key not in self._names and self._given.get(key) is not None:
                raise ValueError(
                    f"the pipeline makes {key}, and another array has that name: rename it"
                )
            if key in self._unchanged and value is self._unchanged[key]:
                made |= {name: self._given[name] for name in self._names[key]}
            else:
                made |= self._parted(key, value) if key in VOXEL_KEYS else {key: value}
        return {name: made[name] for name in dict.fromkeys((*self._given, *made)) if name in made}

    def _parted(self, key: str, value: Any) -> dict[str, Any]:
        """A role's array by the caller's names."""
        names = self._names.get(key, [key])
        if isinstance(value, list) and len(names) == 1:
            return {names[0]: [self._as_given(key, names[0], level) for level in value]}
        if isinstance(value, list):  # deep supervision's levels
            levels = [self._parted(key, level) for level in value]
            return {name: [level[name] for level in levels] for name in names}
        parts = [value]
        if len(names) > 1:
            counts = [len(self._checked[name]) for name in names]
            if sum(counts) != len(value):
                raise ValueError(
                    f"{', '.join(names)} are all {key}, {sum(counts)} channels together, and the "
                    f"pipeline made {len(value)} of "
                    "them: which of them belong to which name is unknown. Pass them as one array"
                )
            parts = np.split(value, np.cumsum(counts)[:-1])
        return {
            name: self._as_given(key, name, part) for name, part in zip(names, parts, strict=True)
        }

    def _as_given(self, key: str, name: str, array: np.ndarray) -> Any:
        if key in IMAGE_KEYS and name in self._checked:
            array = array.astype(self._checked[name].dtype, copy=False)
        if key == "segmentation":
            array = self._in_own_dtype(name, array)
        model = name if self._given.get(name) is not None else self._names.get("image", [name])[0]
        if not isinstance(self._given.get(model), torch.Tensor):
            return array
        return torch.from_numpy(
            np.ascontiguousarray(array) if min(array.strides, default=0) < 0 else array
        )

    def _in_own_dtype(self, name: str, labels: np.ndarray) -> np.ndarray:
        """Return labels in the dtype in which the caller passed them, before they were joined with
        others.
        """
        own = self._own_label_dtypes()
        if len(own) < 2 or labels.dtype != np.result_type(*own):
            return labels  # nothing was joined, or a transform made something else of it
        dtype = self._checked[name].dtype
        if dtype == labels.dtype:
            return labels
        result: np.ndarray = labels.astype(dtype)
        if not np.array_equal(result, labels):
            raise ValueError(
                f"the pipeline writes labels into {name} that its dtype, {dtype}, does not hold: "
                "convert it first, e.g. "
                f"{name}.astype(numpy.{labels.dtype})"
            )
        return result


def _joined(role: str, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    if len({array.shape[1:] for array in arrays.values()}) > 1:
        shown = ", ".join(f"{name} {array.dtype} {array.shape}" for name, array in arrays.items())
        raise ValueError(f"arrays of one role ({role}) must have one spatial shape, got {shown}")
    return np.concatenate(list(arrays.values()))


class LazyVolume:
    """An array (C, X, Y, Z) or (C, X, Y) that is somewhere else: in a compressed file, in part
    beyond an image's border.

    It may stand for ``image``, ``regression_target`` or ``segmentation`` in a sample.
    `SpatialTransform` and the crops read the part that they need; any other transform reads all of
    it.

    Attributes:
        shape: with the channels in front.
        dtype: of what `read` gives.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self, starts: Sequence[int], stops: Sequence[int]) -> np.ndarray:
        """All channels of the voxels ``starts`` to ``stops`` (excluded), one number per spatial
        axis, within the shape.

        Returns:
            (C, *extents), C-contiguous, that nothing else holds.
        """
        raise NotImplementedError

    def lend(self, starts: Sequence[int], stops: Sequence[int], between: Between) -> np.ndarray:
        """As `read`, of memory that the next call in this thread may take again: for a box that is
        only looked at.

        Args:
            between: ``(first, last)`` -> ``(starts, stops)`` of what will be looked at in these
                planes of the box (``last`` excluded); the rest may be anything.
        """
        return self.read(starts, stops)

    def read_all(self) -> np.ndarray:
        """The whole array, C-contiguous, that nothing else holds."""
        return self.read([0] * (len(self.shape) - 1), self.shape[1:])

    def planes_as_channels(self) -> LazyVolume:
        """(C, X, Y, Z) as (C · X, Y, Z), channel c's plane x being number ``c · X + x``."""
        return _Planes(self)


class _Planes(LazyVolume):
    def __init__(self, volume: LazyVolume) -> None:
        channels, planes, *plane = volume.shape
        self._volume = volume
        self.shape = (channels * planes, *plane)
        self.dtype = volume.dtype

    def read(self, starts: Sequence[int], stops: Sequence[int]) -> np.ndarray:
        planes = self._volume.shape[1]
        array = self._volume.read([0, *starts], [planes, *stops])
        return array.reshape(self.shape[0], *array.shape[2:])


def spatial_shape(shapes: Mapping[str, Any], **wanted: Sequence[int]) -> tuple[int, ...]:
    """The spatial shape that a sample's images and segmentation have in common; a ValueError if
    there is none, or if it has not as many axes as a ``wanted`` size.
    """
    spaces = {key: tuple(shapes[key][1:]) for key in VOXEL_KEYS if shapes.get(key) is not None}
    if len(set(spaces.values())) > 1:
        raise ValueError(f"the sample's arrays differ in their spatial shape: {spaces}")
    if not spaces:
        raise ValueError(
            f"the sample has none of {', '.join(VOXEL_KEYS)}, so that its spatial shape is not "
            "known"
        )
    space = next(iter(spaces.values()))
    for name, size in wanted.items():
        if len(size) != len(space):
            raise ValueError(f"{name} {size} does not fit a sample of spatial shape {space}")
    return space


def in_space(shapes: Mapping[str, Any], space: Sequence[int]) -> dict[str, Any]:
    """The same shapes, those of arrays of voxels in another space."""
    return {
        **shapes,
        **{key: (shapes[key][0], *space) for key in VOXEL_KEYS if shapes.get(key) is not None},
    }
