"""The arrays that transforms work on, and volumes that are read on demand.

    caller's arrays, by name -> joined by role, float32 -> transforms, in place -> split, own dtypes

A transform that changes nothing costs no copy: its array is the caller's until the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import torch

from detaug.transforms.building.checks import checked_array
from detaug.transforms.building.gate import VOXEL_KEYS
from detaug.transforms.building.grids import GRID, VoxelGrid

T = TypeVar("T")

#: Those of `VOXEL_KEYS` that are images.
IMAGE_KEYS = ("image", "regression_target")
_FLOAT32 = np.dtype(np.float32)
#: (first plane, last plane) -> the first and the last voxel that are needed of these planes.
Between = Callable[[int, int], tuple[Sequence[int], Sequence[int]]]


class Workspace:
    """One sample's arrays while transforms are applied, as NumPy arrays.

    The caller's arrays are not written to. The first transform that changes an array writes a new
    one, if possible in one pass (`source_and_destination`). That array is *owned*, and later
    transforms work on it in place. Images are float32 in here.

    Several arrays of one role are one array in here, joined along their channels. Segmentations of
    several dtypes are joined in a dtype that holds the labels of all, and returned in their own.

    Args:
        arrays: by the caller's names: images and regression targets of shape (C, X, Y) or
            (C, X, Y, Z), floating point; segmentations of such a shape; NumPy arrays, CPU tensors
            or a `LazyVolume`, of which only the part that is needed is read. Anything else passes
            through unchanged.
        roles: the caller's name -> the role, which is the key in here.
        grid: where the voxels lie. None: unknown.

    Raises:
        TypeError: an image that is not floating point, or something that is no array.
        ValueError: a shape with the wrong number of dimensions or an empty axis; arrays of one role
            that cannot be joined, or have another number of channels at the end, or labels that
            their own dtype does not hold; a transform makes an array whose name belongs to an
            array without that role.
    """

    def __init__(
        self, arrays: Mapping[str, Any], roles: Mapping[str, str], grid: VoxelGrid | None = None
    ) -> None:
        self._input = arrays
        self._grid = grid
        # Entries that no transform gets: None, and names of roles that have another role.
        self._bypassing: dict[str, Any] = {}
        self._arrays: dict[str, Any] = {}
        for name, value in arrays.items():
            is_left_alone = name in VOXEL_KEYS and name not in roles
            if value is None or is_left_alone:
                self._bypassing[name] = value
            elif name not in roles:
                self._arrays[name] = value
        self._owned: set[str] = set()
        # A cache, until an array is put or removed.
        self._shapes: Mapping[str, Any] | None = None
        # The caller's arrays by name, and the array of each role as long as nothing changed it.
        self._checked: dict[str, np.ndarray] = {}
        self._unchanged: dict[str, np.ndarray] = {}
        self._names: dict[str, list[str]] = {}
        for name, role in roles.items():
            if arrays[name] is not None:
                self._names.setdefault(role, []).append(name)
        for role, names in self._names.items():
            self._arrays[role] = self._role_array(role, names)

    def _role_array(self, role: str, names: list[str]) -> Any:
        """Return the array of a role, joined from the caller's arrays of these names."""
        first = self._input[names[0]]
        if len(names) == 1 and isinstance(first, LazyVolume):
            return first
        arrays = {name: checked_array(role, self._input[name]) for name in names}
        self._checked.update(arrays)
        joined = _joined(role, arrays)
        self._unchanged[role] = joined
        return joined

    def __contains__(self, key: str) -> bool:
        return self._arrays.get(key) is not None

    def __getitem__(self, key: str) -> Any:
        value = self._arrays[key]
        if isinstance(value, LazyVolume):
            # Kept as an array, so that it is read once.
            value = value.read_all()
            self.put(key, value)
        return value

    def get(self, key: str) -> Any:
        """Return the value, or None if the sample has no such key."""
        if key not in self._arrays:
            return None
        return self[key]

    def lazy(self, key: str) -> LazyVolume | None:
        """Return the volume that stands for the array until all of its voxels are needed."""
        value = self._arrays.get(key)
        if isinstance(value, LazyVolume):
            return value
        return None

    def present(self) -> dict[str, Any]:
        """Return all entries as they are; a `LazyVolume` stays one until a part of it is read."""
        return dict(self._arrays)

    def shapes(self) -> Mapping[str, Any]:
        """Return every array's shape, and plain integers as they are, for `Transform.sample`."""
        # Cached: every transform asks for the shapes twice, and most change none.
        if self._shapes is None:
            # Integers as well: `Convert3DTo2D` leaves the number of channels for `Convert2DTo3D`.
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
        """The grid on which the voxels lie; None if the caller did not pass one."""
        return self._grid

    @grid.setter
    def grid(self, grid: VoxelGrid | None) -> None:
        self._grid = grid
        self._shapes = None

    def put(self, key: str, value: Any, *, owned: bool = True) -> None:
        """Set a key to an array.

        Args:
            key: the key.
            value: the array.
            owned: nothing else holds the array's memory. False: it is a view of one that
                something else holds.
        """
        self._arrays[key] = value
        self._shapes = None
        if owned:
            self._owned.add(key)
        else:
            self._owned.discard(key)

    def put_reshaped(self, key: str, value: np.ndarray) -> None:
        """Set a key to an array derived from its current one: a view of it, or a copy."""
        # A view of an array that is not owned shares its memory: nobody may write to it either.
        is_copy = not np.may_share_memory(value, self._arrays[key])
        self.put(key, value, owned=key in self._owned or is_copy)

    def remove(self, key: str) -> None:
        """Remove a key and its array."""
        del self._arrays[key]
        self._shapes = None
        self._owned.discard(key)

    def image(self, key: str = "image") -> np.ndarray:
        """Return the array as `contiguous` does, to be read; read-only unless it is owned."""
        array = self.contiguous(key)
        if key not in self._owned and array.flags.writeable:
            # A transform that writes to it by mistake gets an error, and changes no array of the
            # caller's.
            array = array.view()
            array.flags.writeable = False
        return array

    def labels(self) -> np.ndarray:
        """Return the segmentation, to be read, in its own dtype."""
        return self.image("segmentation")

    def label_dtypes(self) -> list[np.dtype[Any]]:
        """Return every dtype that must hold a label which a transform writes.

        These are the dtypes of the segmentations that the caller passed, unless a transform has
        changed the dtype (it may have made regions of the labels).
        """
        segmentation = self.lazy("segmentation") or self["segmentation"]
        original_dtypes = self._original_label_dtypes()
        if original_dtypes and segmentation.dtype == np.result_type(*original_dtypes):
            return original_dtypes
        return [segmentation.dtype]

    def _original_label_dtypes(self) -> list[np.dtype[Any]]:
        names = self._names.get("segmentation", [])
        return [self._checked[name].dtype for name in names if name in self._checked]

    def contiguous(self, key: str) -> np.ndarray:
        """Return the array itself, C-contiguous, float32 if it is an image.

        It must not be written to unless it is owned.
        """
        array: np.ndarray = self[key]
        dtype = array.dtype
        if key in IMAGE_KEYS:
            dtype = _FLOAT32
        if array.dtype != dtype or not array.flags.c_contiguous:
            # Kept, so that the next transform need not convert it again.
            array = array.astype(dtype, order="C")
            self.put(key, array)
        return array

    def writable(self, key: str) -> np.ndarray:
        """Return the array, C-contiguous, float32 if it is an image, to be changed in place.

        It is copied first if it is not owned.
        """
        source, destination = self.source_and_destination(key)
        if destination is not source:
            destination[...] = source
        return destination

    def source_and_destination(self, key: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the arrays to read from and to write to, for one pass without a copy before it.

        They are one array if it is owned. Else the destination is new, uninitialised memory, and
        the caller must fill every channel of it.
        """
        source = self.contiguous(key)
        if key in self._owned:
            return source, source
        destination = np.empty_like(source)
        self.put(key, destination)
        return source, destination

    def chosen_channels(
        self, chosen: Mapping[int, T], shaped: Callable[[np.ndarray], np.ndarray] = np.asarray
    ) -> Iterator[tuple[T, np.ndarray, np.ndarray]]:
        """Yield (value, source, destination) for each of the image's chosen channels.

        The caller fills each destination; source and destination are one array if it is owned.
        Other channels are copied if necessary. If none is chosen, nothing is touched.

        Args:
            chosen: index of a channel -> the value that is yielded with it.
            shaped: returns the view of a channel that the caller works on.

        Raises:
            IndexError: a channel that the image does not have.
        """
        if not chosen:
            return
        source, destination = self.source_and_destination("image")
        for channel in chosen:
            if not 0 <= channel < len(source):
                raise IndexError(
                    f"params name channel {channel}, but image has {len(source)} channel(s): 0 to"
                    f" {len(source) - 1}"
                )
        # Over all channels: in a new destination those not chosen must be copied.
        for channel in range(len(source)):
            if channel in chosen:
                yield chosen[channel], shaped(source[channel]), shaped(destination[channel])
            elif destination is not source:
                destination[channel] = source[channel]

    def result(self) -> dict[str, Any]:
        """Return all arrays under the caller's names.

        Each is of the kind (NumPy or torch) that was passed in, images in their dtype, too. An
        array that no transform changed is the caller's object itself.
        """
        output = dict(self._bypassing)
        for key in self.present():
            value = self[key]
            if key not in VOXEL_KEYS:
                output[key] = value
                continue
            if key not in self._names and self._input.get(key) is not None:
                raise ValueError(
                    f"the pipeline makes {key}, and another array has that name: rename it"
                )
            # Nothing changed: return the caller's own object, which may be a tensor.
            if key in self._unchanged and value is self._unchanged[key]:
                for name in self._names[key]:
                    output[name] = self._input[name]
            else:
                output.update(self._split(key, value))
        # In the caller's order; a key that a transform added comes last.
        order = dict.fromkeys((*self._input, *output))
        return {name: output[name] for name in order if name in output}

    def _split(self, key: str, value: Any) -> dict[str, Any]:
        """Return a role's array, or levels of deep supervision, as the caller's arrays by name."""
        names = self._names.get(key, [key])
        if isinstance(value, list):
            levels = [self._split(key, level) for level in value]
            return {name: [level[name] for level in levels] for name in names}
        if len(names) == 1:
            return {names[0]: self._restored(key, names[0], value)}
        counts = [len(self._checked[name]) for name in names]
        if sum(counts) != len(value):
            raise ValueError(
                f"{', '.join(names)} are all {key}, {sum(counts)} channels together, and the"
                f" pipeline made {len(value)} of them: which of them belong to which name is"
                " unknown. Pass them as one array"
            )
        parts = np.split(value, np.cumsum(counts)[:-1])
        restored = {}
        for name, part in zip(names, parts, strict=True):
            restored[name] = self._restored(key, name, part)
        return restored

    def _restored(self, key: str, name: str, array: np.ndarray) -> Any:
        """Return an array in the dtype and of the kind of the caller's array of that name.

        An array that the caller did not pass is of the kind of the image.
        """
        # Transforms compute in float32; the caller gets back the dtype that was passed.
        if key in IMAGE_KEYS and name in self._checked:
            array = array.astype(self._checked[name].dtype, copy=False)
        if key == "segmentation":
            array = self._in_original_dtype(name, array)
        model = self._input.get(name)
        if model is None:
            first_image, *_ = self._names.get("image", [name])
            model = self._input.get(first_image)
        if not isinstance(model, torch.Tensor):
            return array
        if min(array.strides, default=0) < 0:
            # torch has no negative strides.
            array = np.ascontiguousarray(array)
        return torch.from_numpy(array)

    def _in_original_dtype(self, name: str, labels: np.ndarray) -> np.ndarray:
        """Return labels in the dtype that they had before they were joined with others.

        Raises:
            ValueError: that dtype does not hold a label that a transform has written.
        """
        original_dtypes = self._original_label_dtypes()
        if len(original_dtypes) < 2 or labels.dtype != np.result_type(*original_dtypes):
            # Nothing was joined, or a transform has changed the dtype.
            return labels
        dtype = self._checked[name].dtype
        converted = _labels_as(dtype, labels)
        if converted is None:
            raise ValueError(
                f"the pipeline writes labels into {name} that its dtype, {dtype}, does not hold:"
                f" convert it first, e.g. {name}.astype(numpy.{labels.dtype})"
            )
        return converted


def _joined(role: str, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return arrays of one role as one array, joined along their channels."""
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    # One array cannot hold channels of different spatial shapes.
    if len({array.shape[1:] for array in arrays.values()}) > 1:
        shown = ", ".join(f"{name} {array.dtype} {array.shape}" for name, array in arrays.items())
        raise ValueError(f"arrays of one role ({role}) must have one spatial shape, got {shown}")
    if role != "segmentation":
        return np.concatenate(list(arrays.values()))
    dtype = np.result_type(*arrays.values())
    converted = []
    for name, array in arrays.items():
        labels = _labels_as(dtype, array)
        if labels is None:
            # It happens where NumPy joins 64-bit integers with other numbers as float64.
            raise ValueError(
                f"segmentations of several dtypes are joined as {dtype}, which does not hold all"
                f" labels of {name} ({array.dtype}): renumber them, e.g. with numpy.unique"
            )
        converted.append(labels)
    return np.concatenate(converted)


def _labels_as(dtype: np.dtype[Any], labels: np.ndarray) -> np.ndarray | None:
    """Return labels in another dtype, or None if it cannot hold all of them."""
    if labels.dtype == dtype:
        return labels
    converted: np.ndarray = labels.astype(dtype)
    # Converted back to compare: NumPy compares 64-bit integers with floats as floats.
    if np.array_equal(converted.astype(labels.dtype), labels, equal_nan=True):
        return converted
    return None


class LazyVolume:
    """An array (C, X, Y, Z) or (C, X, Y) that is not in memory, but in a file, for example.

    It may stand for ``image``, ``regression_target`` or ``segmentation`` in a sample. A part of it
    may lie beyond an image's border. `SpatialTransform` and the crops read the part that they need;
    any other transform reads all of it.

    Attributes:
        shape: the channels first.
        dtype: of the arrays that `read` returns.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self, starts: Sequence[int], stops: Sequence[int]) -> np.ndarray:
        """Read all channels of a box.

        Args:
            starts: the box's first voxel, one number for each spatial axis, within the shape.
            stops: the voxel after its last one, likewise.

        Returns:
            (C, *extents), C-contiguous, in memory that nothing else holds.
        """
        raise NotImplementedError

    def lend(self, starts: Sequence[int], stops: Sequence[int], between: Between) -> np.ndarray:
        """Read a box as `read` does, into memory that the next call in this thread may reuse.

        Args:
            starts: as for `read`.
            stops: as for `read`.
            between: ``(first, last)`` -> ``(starts, stops)`` of the voxels that the caller needs in
                the box's planes from first to last (excluded); the others may have any value.
        """
        return self.read(starts, stops)

    def read_all(self) -> np.ndarray:
        """Read the whole array, C-contiguous, into memory that nothing else holds."""
        return self.read([0] * (len(self.shape) - 1), self.shape[1:])

    def planes_as_channels(self) -> LazyVolume:
        """Return (C, X, Y, Z) as (C · X, Y, Z); plane x of channel c has index ``c · X + x``."""
        return _Planes(self)


class _Planes(LazyVolume):
    """A volume's planes as channels (see `LazyVolume.planes_as_channels`)."""

    def __init__(self, volume: LazyVolume) -> None:
        channels, planes, *plane = volume.shape
        self._volume = volume
        self.shape = (channels * planes, *plane)
        self.dtype = volume.dtype

    def read(self, starts: Sequence[int], stops: Sequence[int]) -> np.ndarray:
        # Channels are always read all, and here the planes are channels.
        planes = self._volume.shape[1]
        array = self._volume.read([0, *starts], [planes, *stops])
        return array.reshape(self.shape[0], *array.shape[2:])


def spatial_shape(shapes: Mapping[str, Any], **wanted: Sequence[int]) -> tuple[int, ...]:
    """Return the spatial shape that a sample's images and segmentation have in common.

    Args:
        shapes: the arrays' shapes by role, (C, X, Y[, Z]).
        wanted: sizes in voxels, by the names of arguments, that must have as many axes.

    Raises:
        ValueError: there is no such shape, or a wanted size has another number of axes.
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
    """Return the same shapes, those of arrays of voxels with another spatial shape."""
    shapes_in_space = dict(shapes)
    for key in VOXEL_KEYS:
        if shapes.get(key) is not None:
            shapes_in_space[key] = (shapes[key][0], *space)
    return shapes_in_space
