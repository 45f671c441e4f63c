"""Checks of what people pass to transforms, with errors that say what was seen and what is allowed.

A value of another kind is a TypeError, one out of range a ValueError; both name the argument.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from detaug.transforms.building.draws import RandomScalar
from detaug.transforms.building.gate import LARGEST_EXPONENT

#: The unsigned integers of as many bytes, for what is done with bits alone.
UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}

_FULL_TURN = 2 * math.pi * (1 + 1e-6)  # float32's 2 pi is one, too


def probability(name: str, value: float) -> float:
    """A number from 0 to 1."""
    number = finite(name, value)
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"{name} must be a probability, 0 to 1, got {value!r}")
    return number


def finite(name: str, value: Any) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number, got {value!r} of type {type(value).__name__}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value!r}")
    return float(value)


def integer(name: str, value: Any, minimum: int, maximum: int | None = None) -> int:
    """An integer from minimum to maximum."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, got {value!r} of type {type(value).__name__}")
    if value < minimum or (maximum is not None and value > maximum):
        allowed = f"at least {minimum}" if maximum is None else f"{minimum} to {maximum}"
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
    return int(value)


def random_scalar(
    name: str, wanted: Any, *, minimum: float = -math.inf, above: float = -math.inf, maximum: float = math.inf
) -> RandomScalar:
    """A number, a range (low, high), or a callable, from ``minimum`` to ``maximum`` and greater than ``above``."""
    if callable(wanted):
        return wanted  # type: ignore[no-any-return]
    if isinstance(wanted, (tuple, list, np.ndarray)):
        if len(wanted) != 2:
            raise ValueError(f"{name} as a range must be (low, high), got {wanted!r}")
        low, high = (_in_range(name, end, minimum, above, maximum) for end in wanted)
        if low > high:
            raise ValueError(f"{name} as a range must be (low, high) with low <= high, got {wanted!r}")
        return low, high
    return _in_range(name, wanted, minimum, above, maximum)


def _in_range(name: str, value: Any, minimum: float, above: float, maximum: float) -> float:
    number = finite(name, value)
    if number < minimum:
        raise ValueError(f"{name} must not be less than {minimum:g}, got {value!r}")
    if number <= above:
        raise ValueError(f"{name} must be greater than {above:g}, got {value!r}")
    if number > maximum:
        raise ValueError(f"{name} must be at most {maximum:g}, got {value!r}")
    return number


def exponents(name: str, wanted: Any) -> RandomScalar:
    """An exponent, a range of exponents or a callable: above 0, and at most 64. A callable's values are checked as params."""
    return random_scalar(name, wanted, above=0, maximum=LARGEST_EXPONENT)


def one_of(name: str, value: str, allowed: Iterable[str]) -> str:
    """One of some texts."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
    return value


def integer_range(name: str, wanted: Any, minimum: int) -> tuple[int, int]:
    """(low, high) of an integer or of a range of integers."""
    ends = tuple(wanted) if isinstance(wanted, (tuple, list)) else (wanted, wanted)
    if len(ends) != 2:
        raise ValueError(f"{name} as a range must be (low, high), got {wanted!r}")
    if any(isinstance(n, bool) or not isinstance(n, (int, np.integer)) for n in ends):
        raise TypeError(f"{name} must be integers, got {wanted!r}")
    low, high = (int(n) for n in ends)
    if low < minimum or low > high:
        raise ValueError(f"{name} must be at least {minimum}, and low <= high, got {wanted!r}")
    return low, high


def radians(name: str, wanted: RandomScalar) -> RandomScalar:
    """An angle, a range of angles or a callable, none beyond a full turn: such ones are most probably in degrees."""
    for angle in () if callable(wanted) else as_list(wanted):
        if abs(angle) > _FULL_TURN:
            raise ValueError(
                f"{name} must be in radians, at most a full turn (2 pi = 6.28), got {wanted!r}: these are degrees. Pass "
                f"radians, e.g. math.radians({angle:g}) = {math.radians(angle):.4g}"
            )
    return wanted


def spatial_size(name: str, size: Any) -> tuple[int, ...]:
    """Two or three positive integers."""
    try:
        numbers = tuple(size)
    except TypeError:
        raise TypeError(f"{name} must be two or three integers, got {size!r}") from None
    if len(numbers) not in (2, 3):
        raise ValueError(f"{name} must have two or three elements, got {size!r}")
    if any(isinstance(n, bool) or int(n) != n for n in numbers):
        raise TypeError(f"{name} must be integers, got {size!r}")
    if any(n < 1 for n in numbers):
        raise ValueError(f"{name} must be positive, got {size!r}")
    return tuple(int(n) for n in numbers)


def axes(name: str, wanted: Any, dims: int | None = None) -> tuple[int, ...]:
    """Spatial axes, 0 to 2 (or to dims - 1), each once, in the order given (sorted if a set)."""
    numbers = tuple(sorted(wanted) if isinstance(wanted, (set, frozenset)) else wanted)
    limit = 3 if dims is None else dims
    if any(isinstance(n, bool) or not isinstance(n, (int, np.integer)) for n in numbers):
        raise TypeError(f"{name} must be integers, got {wanted!r}")
    if any(not 0 <= n < limit for n in numbers):
        raise ValueError(f"{name} must be spatial axes, 0 to {limit - 1}, got {wanted!r}")
    if len(set(numbers)) != len(numbers):
        raise ValueError(f"{name} must not name an axis twice, got {wanted!r}")
    return tuple(int(n) for n in numbers)


def as_list(wanted: Any) -> list[Any]:
    """One thing as a list of one; a sequence as a list."""
    return list(wanted) if isinstance(wanted, (list, tuple, np.ndarray, range)) else [wanted]


def channels(name: str, wanted: Sequence[int], count: int) -> list[int]:
    """Channels as non-negative numbers; -1 is the last one, as in NumPy. One that there is not is an IndexError."""
    for channel in wanted:
        if not -count <= channel < count:
            raise IndexError(f"{name} names channel {channel}, but the array has {count} channel(s): 0 to {count - 1}")
    return [int(channel) % count for channel in wanted]


def checked_array(key: str, value: Any) -> np.ndarray:
    """The value under a transform's key as a NumPy array (a view of a tensor).

    Raises:
        TypeError: no array, a tensor that is not on the CPU, an image that is not floating point, labels that are no numbers.
        ValueError: a wrong number of dimensions, or an empty axis.

    Warns:
        UserWarning: a tensor that requires a gradient.
    """
    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu":
            raise TypeError(f"{key} is on {value.device}: transforms work on the CPU, pass {key}.cpu()")
        if value.requires_grad:
            warnings.warn(
                f"{key} requires a gradient, and what transforms give has none: pass {key}.detach() to say so",
                stacklevel=2,
            )
        try:
            array = value.detach().numpy()
        except TypeError:
            raise TypeError(f"{key} has dtype {value.dtype}, which NumPy does not have: pass {key}.float()") from None
    elif isinstance(value, np.ndarray):
        array = value
    else:
        raise TypeError(f"{key} must be a NumPy array or a torch tensor, got {type(value).__name__}")
    if key in ("keypoints", "bbox"):
        return array
    if array.ndim not in (3, 4):
        batch = "; a whole batch is passed as data (B, C, X, Y[, Z])" if array.ndim == 5 else ""
        raise ValueError(f"{key} must have shape (C, X, Y) or (C, X, Y, Z), got {array.shape}{batch}")
    if 0 in array.shape:
        raise ValueError(f"{key} must not have an empty axis, got shape {array.shape}")
    if key in ("image", "regression_target") and array.dtype.kind != "f":
        raise TypeError(
            f"{key} must be floating point, got {array.dtype}: convert it first, e.g. {key}.astype(numpy.float32)"
        )
    if key == "segmentation" and (array.dtype.kind not in "biuf" or array.dtype.itemsize > 8):
        raise TypeError(
            f"{key} must hold integers, bools or floating point numbers of at most 64 bits, got dtype {array.dtype}: convert it "
            f"first, e.g. {key}.astype(numpy.int16)"
        )
    return array


def representable(name: str, value: float, dtype: np.dtype[Any]) -> Any:
    """A value as an array of this dtype holds it; a ValueError if no element of it can be that value."""
    with np.errstate(invalid="ignore"):
        held = np.asarray(value).astype(dtype)
    if dtype.kind != "f" and held != value:
        whole = "0 and 1" if dtype.kind == "b" else f"whole numbers from {np.iinfo(dtype).min} to {np.iinfo(dtype).max}"
        raise ValueError(
            f"{name} is {value!r}, which an array of dtype {dtype} cannot hold: it has {whole}. Convert it first, e.g. with "
            ".astype(numpy.int16), or take another value"
        )
    return held
