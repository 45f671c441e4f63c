"""Checks of what people pass to transforms, with errors that say what was seen and what is allowed.

A value of another kind is a TypeError, one out of range a ValueError; both name the argument.
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

#: The unsigned integers of as many bytes, for what is done with bits alone.
UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}

_NOTHING = ParamContext(None, {}, {})
_FULL_TURN = 2 * math.pi * (1 + 1e-6)  # float32's 2 pi is one, too


def argument(name: str, value: Any, check: Check) -> Any:
    """A value of a constructor's argument that a check of params takes, in Python's own numbers and
    lists.
    """
    try:
        plain = as_plain(value)
        check(_NOTHING, plain)
    except InvalidParam as refused:
        raise refused.kind(f"{name}{refused.path} {refused}") from None
    return plain


def probability(name: str, value: float) -> float:
    """A number from 0 to 1."""
    return float(argument(name, value, gate.number(0, 1)))


def finite(name: str, value: Any) -> float:
    """A finite number."""
    return float(argument(name, value, gate.number()))


def integer(name: str, value: Any, minimum: int, maximum: int = gate.LARGEST_INTEGER) -> int:
    """An integer from minimum to maximum."""
    return int(argument(name, value, gate.integer(minimum, maximum)))


def one_of(name: str, value: str, allowed: Iterable[str]) -> str:
    """One of some texts."""
    return str(argument(name, value, gate.one_of(*allowed)))


def random_scalar(
    name: str,
    wanted: Any,
    *,
    minimum: float = -gate.LARGEST,
    above: float | None = None,
    maximum: float = gate.LARGEST,
) -> RandomScalar:
    """A number, a range (low, high), or a callable, from ``minimum`` to ``maximum`` and greater
    than ``above``.
    """
    if callable(wanted):
        return wanted  # type: ignore[no-any-return]
    check = gate.number(minimum, maximum, above=above)
    if not isinstance(wanted, (tuple, list, np.ndarray)):
        return float(argument(name, wanted, check))
    low, high = argument(name, wanted, gate.many(check, 2))
    return float(low), float(_not_below(name, low, high))


def integer_range(name: str, wanted: Any, minimum: int) -> tuple[int, int]:
    """(low, high) of an integer or of a range of integers."""
    ends = wanted if isinstance(wanted, (tuple, list)) else (wanted, wanted)
    low, high = argument(name, ends, gate.many(gate.integer(minimum), 2))
    return low, _not_below(name, low, high)


def _not_below(name: str, low: Any, high: Any) -> Any:
    if low > high:
        raise ValueError(
            f"{name} as a range must be (low, high) with low <= high, got {(low, high)}"
        )
    return high


def radians(name: str, wanted: RandomScalar) -> RandomScalar:
    """An angle, a range of angles or a callable, none beyond a full turn: such ones are most
    probably in degrees.
    """
    for angle in () if callable(wanted) else as_list(wanted):
        if abs(angle) > _FULL_TURN:
            raise ValueError(
                f"{name} must be in radians, at most a full turn (2 pi = 6.28), got {wanted!r}: "
                "these are degrees. Pass "
                f"radians, e.g. math.radians({angle:g}) = {math.radians(angle):.4g}"
            )
    return wanted


def spatial_size(name: str, size: Any) -> tuple[int, ...]:
    """Two or three positive integers."""
    numbers = argument(name, size, gate.many(gate.whole_number(1, gate.LARGEST_INTEGER)))
    if len(numbers) not in (2, 3):
        raise ValueError(f"{name} must have two or three elements, got {size!r}")
    return tuple(int(n) for n in numbers)


def axes(name: str, wanted: Any, dims: int = 3) -> tuple[int, ...]:
    """Spatial axes, 0 to dims - 1, each once, in the order given (sorted if a set)."""
    given = sorted(wanted) if isinstance(wanted, (set, frozenset)) else list(wanted)
    return tuple(
        argument(name, given, gate.distinct(gate.many(gate.integer(0, dims - 1, "a spatial axis"))))
    )


def as_list(wanted: Any) -> list[Any]:
    """One thing as a list of one; a sequence as a list."""
    return list(wanted) if isinstance(wanted, (list, tuple, np.ndarray, range)) else [wanted]


def channels(name: str, wanted: Sequence[int], count: int) -> list[int]:
    """Channels as non-negative numbers; -1 is the last one, as in NumPy. One that there is not is
    an IndexError.
    """
    for channel in wanted:
        if not -count <= channel < count:
            raise IndexError(
                f"{name} names channel {channel}, but the array has {count} channel(s): 0 to "
                f"{count - 1}"
            )
    return [int(channel) % count for channel in wanted]


def checked_array(key: str, value: Any) -> np.ndarray:
    """The value under a transform's key as a NumPy array (a view of a tensor).

    Raises:
        TypeError: no array or a masked one, a tensor that is not on the CPU, an image that is not
            floating point, labels that are no numbers.
        ValueError: a wrong number of dimensions, or an empty axis.

    Warns:
        UserWarning: a tensor that requires a gradient.
    """
    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu":
            raise TypeError(
                f"{key} is on {value.device}: transforms work on the CPU, pass {key}.cpu()"
            )
        if value.requires_grad:
            warnings.warn(
                f"{key} requires a gradient, and what transforms give has none: pass "
                f"{key}.detach() to say so",
                stacklevel=2,
            )
        try:
            array = value.detach().numpy()
        except TypeError:
            raise TypeError(
                f"{key} has dtype {value.dtype}, which NumPy does not have: pass {key}.float()"
            ) from None
    elif isinstance(value, np.ndarray):
        array = unmasked(key, value)
    else:
        raise TypeError(
            f"{key} must be a NumPy array or a torch tensor, got {type(value).__name__}"
        )
    if array.ndim not in (3, 4):
        batch = "; a whole batch is passed as data (B, C, X, Y[, Z])" if array.ndim == 5 else ""
        raise ValueError(
            f"{key} must have shape (C, X, Y) or (C, X, Y, Z), got {array.shape}{batch}"
        )
    if 0 in array.shape:
        raise ValueError(f"{key} must not have an empty axis, got shape {array.shape}")
    if key in ("image", "regression_target") and array.dtype.kind != "f":
        raise TypeError(
            f"{key} must be floating point, got {array.dtype}: convert it first, e.g. "
            f"{key}.astype(numpy.float32)"
        )
    if key == "segmentation" and (array.dtype.kind not in "biuf" or array.dtype.itemsize > 8):
        raise TypeError(
            f"{key} must hold integers, bools or floating point numbers of at most 64 bits, got "
            f"dtype {array.dtype}: convert it "
            f"first, e.g. {key}.astype(numpy.int16)"
        )
    return array


def unmasked(name: str, array: np.ndarray) -> np.ndarray:
    """Return the array; a TypeError if it is a masked one, whose mask kernels would not see."""
    # Without numpy.ma there is no such array, and to import it takes time.
    if "numpy.ma" in sys.modules and isinstance(array, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a numpy.ma.MaskedArray, and transforms know no masks: pass "
            f"{name}.filled(value), with the value that "
            "masked elements are to have, and the mask as a segmentation if it is needed"
        )
    return array


@lru_cache  # NumPy looks them up for longer than a plane of labels is gone through
def _ends(dtype: np.dtype[Any]) -> tuple[int, int]:
    return (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))


def representable(name: str, value: float, dtype: np.dtype[Any]) -> None:
    """A ValueError if no element of an array of this dtype can be that value."""
    if dtype.kind == "f":
        return
    low, high = _ends(dtype)
    if not (low <= value <= high and value == math.floor(value)):
        whole = "0 and 1" if dtype.kind == "b" else f"whole numbers from {low} to {high}"
        raise ValueError(
            f"{name} is {value!r}, which an array of dtype {dtype} cannot hold: it has {whole}. "
            "Convert it first, e.g. with "
            ".astype(numpy.int16), or take another value"
        )
