"""The one gate between params and what is done with them, whether they were drawn, made by hand or read from JSON.

A transform says what its params may be where it uses them, so that `Transform.change`, and the kernels that it calls, get
nothing else:

    @takes(apply_to_channel=CHANNELS, sigmas=for_each("apply_to_channel", number(0)), key=KEY)
    def change(self, workspace: Workspace, params: Params) -> None: ...

Kernels check nothing: an index that follows from NaN, from an infinity or from an axis that there is not is a place
outside of the array.
"""

from __future__ import annotations

import functools
import itertools
import math
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_LARGEST = 3e38  # a float32 holds it
_LARGEST_INTEGER = 2**31 - 1
#: Voxels: filters that are wider need more memory and time than there is.
LARGEST_SIGMA = 250.0
LARGEST_EXPONENT = 64.0


class Given:
    """What is checked, and of what it may depend: the transform, its params, and the arrays' shapes."""

    __slots__ = ("_shape", "_shapes", "is_plain", "params", "transform")

    def __init__(self, transform: Any, params: Any, shapes: Callable[[], Mapping[str, Any]]) -> None:
        self.transform, self.params, self._shapes = transform, params, shapes
        self._shape: tuple[int, ...] | None = None
        self.is_plain = True  # no NumPy numbers: those of few bits overflow in what is computed of them

    def shape(self) -> tuple[int, ...]:
        """(channels, *space) of the image, or of what there is in its place."""
        if self._shape is None:
            shapes = self._shapes()
            self._shape = shapes.get("image") or shapes.get("segmentation") or shapes.get("regression_target") or ()
        return self._shape

    def dims(self) -> int:
        return len(self.shape()) - 1


#: Raises `Refused` where the value is not what it checks for.
Check = Callable[[Given, Any], None]
Length = int | Callable[[Given], int]


class Refused(Exception):
    """A value that params may not have; ``path`` is where it stands in them, from within."""

    def __init__(self, kind: type[Exception], text: str) -> None:
        super().__init__(text)
        self.kind, self.path = kind, ""


def _is_empty(_: Any, params: Any) -> bool:
    return type(params) is dict and not params


def takes(usual: Callable[[Any, Any], bool] | None = None, /, **checks: Check) -> Callable[[Callable[..., None]], Any]:
    """For `Transform.change`: the params that it takes, all of them, and what each may be.

    ``usual``: whether params of a transform are those that most samples have, which need no look.

    A subclass with a `change` of its own may hand over further ones.

    Raises:
        KeyError: one is missing. IndexError: a channel that there is not. TypeError, ValueError: any other value that a check
            refuses, and a param that the transform does not know.
    """

    if not checks:
        usual = _is_empty

    def decorate(change: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(change)
        def gated(self: Any, workspace: Any, params: Any) -> None:
            is_usual = usual is not None and usual(self, params)
            if not is_usual and not check_params(self, params, workspace.shapes, checks, type(self).change is gated):
                params = _as_plain(params)
            change(self, workspace, params)

        gated.checks = checks  # type: ignore[attr-defined]
        return gated

    return decorate


def check_params(
    transform: Any,
    params: Any,
    shapes: Callable[[], Mapping[str, Any]],
    checks: Mapping[str, Check] | None = None,
    alone: bool = True,
) -> bool:
    """See that params are what the transform's `change` takes; raises as `takes`. Whether they are plain Python.

    Args:
        shapes: gives those of the arrays.
        checks: None: those of the transform's class.
        alone: there may be no others.
    """
    try:
        wanted = type(transform).change.checks if checks is None else checks
        given = Given(transform, params, shapes)
        _check_fields(wanted, given, params, alone)
        return given.is_plain
    except Refused as refused:
        text = f"{type(transform).__name__}: params{refused.path} {refused}"
        if refused.kind is KeyError:
            text = f"params{refused.path} of {type(transform).__name__} {refused}"
        raise refused.kind(text) from None


def _as_plain(value: Any) -> Any:
    """The same in Python's own numbers and lists."""
    if isinstance(value, Mapping):
        return {name: _as_plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_as_plain(each) for each in value]
    for kind, wanted in ((np.bool_, bool), (np.integer, int), (np.floating, float)):
        if isinstance(value, kind):
            return wanted(value)
    return value


def _check_fields(checks: Mapping[str, Check], given: Given, value: Any, alone: bool = True) -> None:
    if type(value) is not dict and not isinstance(value, Mapping):
        raise _wrong(TypeError, "be a dict, as sample gives it", value)
    found, name = 0, ""
    try:
        for name, check in checks.items():
            if name in value:
                found += 1
                check(given, value[name])
            elif not isinstance(check, _Needed) or check.needed(given):
                raise Refused(KeyError, f"have no {name!r}, but {', '.join(map(repr, value)) or 'nothing'}")
    except Refused as refused:
        if name in value:
            refused.path = f"[{name!r}]{refused.path}"
        raise
    if alone and found < len(value):
        surplus = [name for name in value if name not in checks]
        known = ", ".join(map(repr, checks)) or "nothing"
        raise Refused(ValueError, f"must have {known} only, got {', '.join(map(repr, surplus))} as well")


class _Needed:
    def __init__(self, check: Check, needed: Callable[[Given], bool]) -> None:
        self.check, self.needed = check, needed

    def __call__(self, given: Given, value: Any) -> None:
        self.check(given, value)


def needed_if(needed: Callable[[Given], bool], check: Check) -> Check:
    """A param that may be left out otherwise."""
    return _Needed(check, needed)


def anything(_: Given, value: Any) -> None:
    """What is checked elsewhere."""


def number(least: float = -_LARGEST, most: float = _LARGEST, *, above: float | None = None) -> Check:
    """A number from least (or above another) to most, both included; always finite."""
    if above is not None:
        least = math.nextafter(above, math.inf)
    allowed = (
        "be a finite number" if (least, most) == (-_LARGEST, _LARGEST) else f"be a number from {least:g} to {most:g}"
    )
    if above is not None:
        allowed = f"be greater than {above:g} and at most {most:g}"

    def check(given: Given, value: Any) -> None:
        if type(value) is float and least <= value <= most:
            return  # nearly always
        if type(value) is not float:
            if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
                raise _wrong(TypeError, allowed, value)
            given.is_plain &= type(value) is int
            try:
                value = float(value)
            except OverflowError:
                raise _wrong(ValueError, allowed, value) from None
        if not least <= value <= most:
            raise _wrong(ValueError, allowed, value)

    return check


def integer(least: int = 0, most: Length = _LARGEST_INTEGER) -> Check:
    """An integer from least to most, both included."""

    def check(given: Given, value: Any) -> None:
        highest = most(given) if callable(most) else most
        _check_integer(given, value, least, highest, "be an integer")

    return check


def whole_number(least: int, most: int) -> Check:
    """An integer, or a number that is equal to one."""

    def check(given: Given, value: Any) -> None:
        if isinstance(value, (float, np.floating)) and math.isfinite(value) and value == int(value):
            value = int(value)
        _check_integer(given, value, least, most, "be a whole number")

    return check


def _check_integer(given: Given, value: Any, least: int, most: int, kind: str) -> None:
    if type(value) is int and least <= value <= most:
        return
    given.is_plain = False
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise _wrong(TypeError, f"{kind} from {least} to {most}", value)
    if not least <= int(value) <= most:
        raise _wrong(ValueError, f"{kind} from {least} to {most}", value)


def flag(given: Given, value: Any) -> None:
    """True or False."""
    given.is_plain &= value is True or value is False
    if value is not True and value is not False and not isinstance(value, np.bool_):
        raise _wrong(TypeError, "be True or False", value)


def one_of(*allowed: Any) -> Check:
    """One of some texts."""

    def check(_: Given, value: Any) -> None:
        if not isinstance(value, str) or value not in allowed:
            raise _wrong(ValueError, f"be one of {', '.join(map(repr, allowed))}", value)

    return check


def nothing(_: Given, value: Any) -> None:
    """None."""
    if value is not None:
        raise _wrong(ValueError, "be None", value)


def optional(check: Check) -> Check:
    """None, or what another check takes."""
    return lambda given, value: None if value is None else check(given, value)


def fields(**checks: Check) -> Check:
    """A dictionary with these keys."""
    return lambda given, value: _check_fields(checks, given, value)


def many(check: Check, length: Length | None = None, *, least: int = 0) -> Check:
    """A list (a tuple, an array) with as many elements as are wanted, each of which a check takes."""

    def check_all(given: Given, value: Any) -> None:
        wanted = length(given) if callable(length) else length
        if type(value) is list and len(value) >= least and (wanted is None or len(value) == wanted):
            if check is anything:
                return
        elif not isinstance(value, (list, tuple, np.ndarray)) or (isinstance(value, np.ndarray) and not value.ndim):
            raise _wrong(TypeError, "be a list", value)
        given.is_plain &= not isinstance(value, np.ndarray)
        if wanted is not None and len(value) != wanted:
            raise Refused(ValueError, f"must be a list of {wanted}, got {reprlib.repr(value)} with {len(value)}")
        if check is anything:
            return
        if len(value) < least:
            raise Refused(ValueError, f"must be a list of at least {least}, got {reprlib.repr(value)}")
        place = 0
        try:
            for each in value:
                check(given, each)
                place += 1
        except Refused as refused:
            refused.path = f"[{place}]{refused.path}"
            raise

    return check_all


def where_not_none(name: str, check: Check) -> Check:
    """A list with one element for each of another param, which stands before this one; None may stand where None stands there."""
    element = for_each(name, optional(check))

    def check_all(given: Given, value: Any) -> None:
        element(given, value)
        for place, (other, each) in enumerate(zip(given.params[name], value, strict=True)):
            if other is not None and each is None:
                raise Refused(ValueError, f"must not be None at {place}, where {name!r} is not")

    return check_all


def each_axis(check: Check) -> Check:
    """A list with one element for each spatial axis."""
    return many(check, Given.dims)


def each_channel(check: Check) -> Check:
    """A list with one element for each channel of the image."""
    return many(check, lambda given: given.shape()[0])


def for_each(name: str, check: Check) -> Check:
    """A list with one element for each of another param, which stands before this one."""
    return many(check, lambda given: len(given.params[name]))


def none_without_channels(check: Check) -> Check:
    """What a check takes; None where ``apply_to_channel``, which stands before it, is empty."""
    return lambda given, value: (
        None if value is None and not len(given.params["apply_to_channel"]) else check(given, value)
    )


def distinct(check: Check) -> Check:
    """What a check takes, without repetition."""

    def check_all(given: Given, value: Any) -> None:
        check(given, value)
        if len(value) > 1 and len(set(value)) != len(value):
            raise _wrong(ValueError, "not have an element twice", value)

    return check_all


def rising(check: Check) -> Check:
    """What a check takes, none less than the one before."""

    def check_all(given: Given, value: Any) -> None:
        check(given, value)
        if any(after < before for before, after in itertools.pairwise(value)):
            raise _wrong(ValueError, "rise", value)

    return check_all


def channel(given: Given, value: Any) -> None:
    """A channel of the image."""
    _check_channel(given, value, 0)


def channel_from_either_end(given: Given, value: Any) -> None:
    """A channel of the image; -1 is the last one."""
    _check_channel(given, value, -given.shape()[0])


def _check_channel(given: Given, value: Any, least: int) -> None:
    count = given.shape()[0]
    if type(value) is int and least <= value < count:
        return
    given.is_plain = False
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise _wrong(TypeError, f"be a channel, {least} to {count - 1}", value)
    if not least <= value < count:
        raise Refused(
            IndexError, f"names channel {value}, but the image has {count} channel(s): {least} to {count - 1}"
        )


def axis(given: Given, value: Any) -> None:
    """A spatial axis."""
    dims = given.dims()
    if type(value) is not int or not 0 <= value < dims:
        _check_integer(given, value, 0, dims - 1, "be a spatial axis")


def _wrong(kind: type[Exception], allowed: str, value: Any) -> Refused:
    shown = reprlib.repr(value)
    return Refused(
        kind, f"must {allowed}, got {shown}" + (f" of type {type(value).__name__}" if kind is TypeError else "")
    )


#: Channels of the image, each once.
CHANNELS = distinct(many(channel))
#: Spatial axes, each once.
AXES = distinct(many(axis))
#: 64 bits, from which more is drawn.
KEY = integer(0, 2**64 - 1)
#: A place along an axis in voxels, also outside of the image. No index that follows from it overflows.
PLACE = number(-1e9, 1e9)
#: A matrix of voxels to voxels: with 2**31 voxels along an axis, places stay within 64 bits.
MATRIX = each_axis(each_axis(number(-1e6, 1e6)))
#: Radians; `detaug.kernels.scalars` computes the sine of those.
ANGLE = number(-1e5, 1e5)
#: The standard deviation of a filter in voxels.
SIGMA = number(0, LARGEST_SIGMA)
#: An exponent of powers of intensities.
EXPONENT = number(above=0, most=LARGEST_EXPONENT)
