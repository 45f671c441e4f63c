"""Checks of the arguments of transforms; errors say what was seen and what is allowed.

A value of a wrong type is a TypeError, one out of range a ValueError; both name the argument.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from detaug.transforms.building import gate
from detaug.transforms.building.draws import RandomScalar
from detaug.transforms.building.gate import Check, InvalidParam, ParamContext, as_plain

#: The unsigned integer dtype by its number of bytes, for work on bits alone.
UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}

#: The context of a constructor's argument: there are no params and no arrays yet.
_NO_CONTEXT = ParamContext(None, {}, {})
#: Radians. The tolerance accepts 2 pi that was rounded to float32.
_FULL_TURN = 2 * math.pi * (1 + 1e-6)


def argument(name: str, value: Any, check: Check) -> Any:
    """Return a constructor's argument, checked, in Python's own numbers and lists."""
    try:
        # Arguments that come from plans or from other libraries are often NumPy's numbers.
        plain = as_plain(value)
        check(_NO_CONTEXT, plain)
    except InvalidParam as refused:
        raise refused.kind(f"{name}{refused.path} {refused}") from None
    return plain


def probability(name: str, value: float) -> float:
    """Return a number from 0 to 1, or raise an error that names the argument."""
    return float(argument(name, value, gate.number(0, 1)))


def finite(name: str, value: Any) -> float:
    """Return a finite number, or raise an error that names the argument."""
    return float(argument(name, value, gate.number()))


def integer(name: str, value: Any, minimum: int, maximum: int = gate.LARGEST_INTEGER) -> int:
    """Return an integer from minimum to maximum, or raise an error that names the argument."""
    return int(argument(name, value, gate.integer(minimum, maximum)))


def one_of(name: str, value: str, allowed: Iterable[str]) -> str:
    """Return one of the allowed texts, or raise an error that names the argument."""
    return str(argument(name, value, gate.one_of(*allowed)))


def random_scalar(
    name: str,
    wanted: Any,
    *,
    minimum: float = -gate.LARGEST,
    above: float | None = None,
    maximum: float = gate.LARGEST,
) -> RandomScalar:
    """Return a number, a range (low, high) or a callable, checked.

    Args:
        name: the argument's name, for errors.
        wanted: the argument's value.
        minimum: the least number allowed.
        above: a bound that numbers must exceed; it replaces `minimum`.
        maximum: the largest number allowed.
    """
    if callable(wanted):
        # `draws.scalar` and the gate check its numbers, which do not exist yet.
        return wanted  # type: ignore[no-any-return]
    check = gate.number(minimum, maximum, above=above)
    if not isinstance(wanted, (tuple, list, np.ndarray)):
        return float(argument(name, wanted, check))
    low, high = argument(name, wanted, gate.many(check, 2))
    _check_order(name, low, high)
    return float(low), float(high)


def integer_range(name: str, wanted: Any, minimum: int) -> tuple[int, int]:
    """Return (low, high) of a range of integers, or of one integer."""
    ends = wanted
    if not isinstance(ends, (tuple, list)):
        ends = (wanted, wanted)
    low, high = argument(name, ends, gate.many(gate.integer(minimum), 2))
    _check_order(name, low, high)
    return low, high


def _check_order(name: str, low: Any, high: Any) -> None:
    # Exchanged ends are most probably a mistake.
    if low > high:
        raise ValueError(
            f"{name} as a range must be (low, high) with low <= high, got {(low, high)}"
        )


def radians(name: str, wanted: RandomScalar) -> RandomScalar:
    """Return an angle, a range of angles or a callable.

    Raises:
        ValueError: an angle is larger than a full turn: it is most probably in degrees.
    """
    if callable(wanted):
        return wanted
    # Nothing after this would notice degrees, and patches would be turned by wrong angles.
    for angle in as_list(wanted):
        if abs(angle) > _FULL_TURN:
            raise ValueError(
                f"{name} must be in radians, at most a full turn (2 pi = 6.28), got {wanted!r}:"
                f" these are degrees. Pass radians, e.g. math.radians({angle:g}) ="
                f" {math.radians(angle):.4g}"
            )
    return wanted


def spatial_size(name: str, size: Any) -> tuple[int, ...]:
    """Return two or three positive integers, in voxels."""
    # Whole floats are accepted: sizes are often computed, or read from JSON.
    numbers = argument(name, size, gate.many(gate.whole_number(1, gate.LARGEST_INTEGER)))
    if len(numbers) not in (2, 3):
        raise ValueError(f"{name} must have two or three elements, got {size!r}")
    return tuple(int(number) for number in numbers)


def axes(name: str, wanted: Any, dims: int = 3) -> tuple[int, ...]:
    """Return spatial axes from 0 to dims - 1, each once, in the given order; a set is sorted."""
    in_order = list(wanted)
    if isinstance(wanted, (set, frozenset)):
        # A set's own order is none that a run could repeat.
        in_order = sorted(wanted)
    axis = gate.integer(0, dims - 1, "a spatial axis")
    return tuple(argument(name, in_order, gate.distinct(gate.many(axis))))


def optional_axes(name: str, wanted: Any) -> tuple[int, ...] | None:
    """Return spatial axes as `axes` does; None, which stands for a default, stays None."""
    if wanted is None:
        return None
    return axes(name, wanted)


def axes_of_sample(name: str, wanted: Sequence[int] | None, dims: int) -> Sequence[int]:
    """Return the wanted axes, checked for a sample with `dims` spatial axes; None means all."""
    if wanted is None:
        return range(dims)
    return axes(name, wanted, dims)


def as_list(wanted: Any) -> list[Any]:
    """Return a sequence as a list, and anything else as a list of one."""
    if isinstance(wanted, (list, tuple, np.ndarray, range)):
        return list(wanted)
    return [wanted]


def channels(name: str, wanted: Sequence[int], count: int) -> list[int]:
    """Return channels as non-negative numbers; -1 is the last one, as in NumPy.

    Args:
        name: the argument's name, for errors.
        wanted: the channels.
        count: the number of channels that the array has.

    Raises:
        IndexError: a channel does not exist.
    """
    # Not left to NumPy's indexing, whose error would not name the argument.
    for channel in wanted:
        if not -count <= channel < count:
            raise IndexError(
                f"{name} names channel {channel}, but the array has {count} channel(s): 0 to"
                f" {count - 1}"
            )
    return [int(channel) % count for channel in wanted]


def checked_array(key: str, value: Any) -> np.ndarray:
    """Return the value of a transform's key as a NumPy array; of a tensor, a view.

    Raises:
        TypeError: no array or a masked one, a tensor that is not on the CPU, an image that is not
            floating point, or labels that are no numbers.
        ValueError: a wrong number of dimensions, or an empty axis.

    Warns:
        UserWarning: a tensor that requires a gradient.
    """
    array = _as_numpy(key, value)
    if array.ndim not in (3, 4):
        advice = ""
        if array.ndim == 5:
            advice = "; a whole batch is passed as data (B, C, X, Y[, Z])"
        raise ValueError(
            f"{key} must have shape (C, X, Y) or (C, X, Y, Z), got {array.shape}{advice}"
        )
    if 0 in array.shape:
        raise ValueError(f"{key} must not have an empty axis, got shape {array.shape}")
    if key in ("image", "regression_target") and array.dtype.kind != "f":
        raise TypeError(
            f"{key} must be floating point, got {array.dtype}: convert it first, e.g."
            f" {key}.astype(numpy.float32)"
        )
    if key == "segmentation" and (array.dtype.kind not in "biuf" or array.dtype.itemsize > 8):
        raise TypeError(
            f"{key} must hold integers, bools or floating point numbers of at most 64 bits, got"
            f" dtype {array.dtype}: convert it first, e.g. {key}.astype(numpy.int16)"
        )
    return array


def _as_numpy(key: str, value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return unmasked(key, value)
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"{key} must be a NumPy array or a torch tensor, got {type(value).__name__}"
        )
    if value.device.type != "cpu":
        raise TypeError(f"{key} is on {value.device}: transforms work on the CPU, pass {key}.cpu()")
    if value.requires_grad:
        # Two frames up: the line that calls `checked_array`.
        warnings.warn(
            f"{key} requires a gradient, and what transforms give has none: pass {key}.detach() if"
            " that is intended",
            stacklevel=3,
        )
    try:
        return value.detach().numpy()
    except TypeError:
        raise TypeError(
            f"{key} has dtype {value.dtype}, which NumPy does not have: pass {key}.float()"
        ) from None


def unmasked(name: str, array: np.ndarray) -> np.ndarray:
    """Return the array, or raise a TypeError for a masked one: kernels would not see the mask."""
    # Before numpy.ma is imported there is no such array, and importing it takes time.
    if "numpy.ma" in sys.modules and isinstance(array, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a numpy.ma.MaskedArray, and transforms know no masks: pass"
            f" {name}.filled(value), with the value that masked elements are to have, and the mask"
            " as a segmentation if it is needed"
        )
    return array


# Cached because NumPy's look-up takes longer than the check of a plane of labels.
@lru_cache
def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the least and the largest number of an integer or bool dtype."""
    if dtype.kind == "b":
        return 0, 1
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def representable(name: str, value: float, dtype: np.dtype[Any]) -> None:
    """Raise a ValueError if no element of an array of this dtype can have that value."""
    if dtype.kind == "f":
        return
    low, high = _limits(dtype)
    if low <= value <= high and value == math.floor(value):
        return
    allowed = f"whole numbers from {low} to {high}"
    if dtype.kind == "b":
        allowed = "0 and 1"
    raise ValueError(
        f"{name} is {value!r}, which an array of dtype {dtype} cannot hold: it has {allowed}."
        " Convert it first, e.g. with .astype(numpy.int16), or take another value"
    )
