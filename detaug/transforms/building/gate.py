"""The one gate between params and what is done with them, whether they were drawn, made by hand or
read from JSON.

A transform says what its params may be where it uses them, so that `Transform.change`, and the
kernels that it calls, get nothing else:

    @takes(apply_to_channel=CHANNELS, sigmas=for_each("apply_to_channel", number(0)), key=KEY)
    def change(self, workspace: Workspace, params: Params) -> None: ...

Kernels check nothing: an index that follows from NaN, from an infinity or from an axis that there
is not is a place outside of the array.
"""

from __future__ import annotations

import functools
import math
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

#: A sample's keys whose values are arrays of shape (channels, *space).
VOXEL_KEYS = ("image", "regression_target", "segmentation")

LARGEST = 3e38  # a float32 holds it
LARGEST_INTEGER = 2**31 - 1
#: Voxels: filters that are wider need more memory and time than there is.
LARGEST_SIGMA = 250.0
LARGEST_EXPONENT = 64.0
#: Levels of lists and dicts in a value. Those of nested compositions are in one value.
_MOST_LEVELS = 100


class ParamContext(NamedTuple):
    """What a check may depend on: the transform, its params, and the arrays' shapes by role."""

    transform: Any
    params: Any
    shapes: Mapping[str, Any]

    def shape(self) -> tuple[int, ...]:
        """(channels, *space) of the image, or of what there is in its place."""
        for key in VOXEL_KEYS:
            if self.shapes.get(key):
                return tuple(self.shapes[key])
        return ()

    def dims(self) -> int:
        return len(self.shape()) - 1


#: Raises `InvalidParam` where the value is not what it checks for. It knows Python's own numbers,
#: lists and tuples only.
Check = Callable[[ParamContext, Any], None]
Length = int | Callable[[ParamContext], int]


class InvalidParam(Exception):
    """A value that params may not have; ``path`` is where it stands in them, from within."""

    def __init__(self, kind: type[Exception], text: str) -> None:
        super().__init__(text)
        self.kind, self.path = kind, ""


def takes(**checks: Check) -> Callable[[Callable[..., None]], Any]:
    """For `Transform.change`: the params that it takes, all of them, and what each may be.

    NumPy's numbers and arrays count as Python's numbers and lists, and are these in `change`.

    Raises:
        KeyError: one is missing. IndexError: a channel that there is not. TypeError, ValueError:
            any other value that a check refuses, and a param that the transform does not know.
    """

    def decorate(change: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(change)
        def gated(self: Any, workspace: Any, params: Any) -> None:
            change(self, workspace, checked(self, params, workspace.shapes(), checks))

        gated.checks = checks  # type: ignore[attr-defined]
        return gated

    return decorate


def checked(
    transform: Any, params: Any, shapes: Mapping[str, Any], checks: Mapping[str, Check]
) -> Any:
    """Params as the transform's `change` gets them; ``shapes`` are the arrays', by role. Raises as
    `takes`.
    """
    try:
        _check_fields(checks, ParamContext(transform, params, shapes), params)
        # as `sample` draws them; to copy those of every part of a composition takes 5 % of a 2-D
        # batch
        return params
    except InvalidParam:
        pass  # NumPy's numbers may be wrong only because they are no plain ones
    try:
        # NumPy's numbers of few bits would overflow in what is computed of them.
        params = _plain_params(params)
        _check_fields(checks, ParamContext(transform, params, shapes), params)
    except InvalidParam as refused:
        raise refused.kind(f"{type(transform).__name__}: params{refused.path} {refused}") from None
    return params


def _plain_params(params: Any) -> Any:
    if not isinstance(params, dict):
        return params
    plain = {}
    for name, value in params.items():
        try:
            plain[name] = as_plain(value)
        except InvalidParam as refused:
            refused.path = f"[{name!r}]"
            raise
    return plain


def as_plain(value: Any) -> Any:
    """Return the same in Python's own numbers and lists.

    Raises:
        Refused: Lists in it are nested too deeply, or contain themselves.
    """
    try:
        return _plain(value, 0)
    except _TooDeep:
        text = f"must have at most {_MOST_LEVELS} levels of lists, got {reprlib.repr(value)}"
        raise InvalidParam(ValueError, text) from None


class _TooDeep(Exception):
    """A value has more levels of lists and dicts than are allowed."""


def _plain(value: Any, level: int) -> Any:
    if level > _MOST_LEVELS:
        raise _TooDeep
    if isinstance(value, dict):
        return {name: _plain(item, level + 1) for name, item in value.items()}
    if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim):
        return [_plain(item, level + 1) for item in value]
    if isinstance(value, np.generic):
        return float(value) if isinstance(value, np.floating) else value.item()
    return value


def _check_fields(checks: Mapping[str, Check], given: ParamContext, value: Any) -> None:
    if not isinstance(value, dict):
        raise _wrong(TypeError, "be a dict, as sample gives it", value)
    for name, check in checks.items():
        if name in value:
            try:
                check(given, value[name])
            except InvalidParam as refused:
                refused.path = f"[{name!r}]{refused.path}"
                raise
        elif not hasattr(check, "needed") or check.needed(given):
            raise InvalidParam(
                KeyError, f"have no {name!r}, but {', '.join(map(repr, value)) or 'nothing'}"
            )
    if not value.keys() <= checks.keys():
        surplus = ", ".join(repr(name) for name in value if name not in checks)
        known = ", ".join(map(repr, checks)) or "nothing"
        raise InvalidParam(ValueError, f"must have {known} only, got {surplus} as well")


def needed_if(needed: Callable[[ParamContext], bool], check: Check) -> Check:
    """A param that may be left out otherwise."""
    check_if_there = functools.partial(check)
    check_if_there.needed = needed  # type: ignore[attr-defined]
    return check_if_there


def anything(_: ParamContext, value: Any) -> None:
    """What is checked elsewhere."""


def number(least: float = -LARGEST, most: float = LARGEST, *, above: float | None = None) -> Check:
    """A number from least (or above another) to most, both included; always finite."""
    allowed = f"be a number from {least:g} to {most:g}"
    if above is not None:
        least, allowed = (
            math.nextafter(above, math.inf),
            f"be greater than {above:g} and at most {most:g}",
        )
    elif (least, most) == (-LARGEST, LARGEST):
        allowed = "be a finite number"

    def check(_: ParamContext, value: Any) -> None:
        if type(value) is not float and type(value) is not int:
            raise _wrong(TypeError, allowed, value)
        if not least <= value <= most:  # also true for NaN
            raise _wrong(ValueError, allowed, value)

    return check


def integer(
    least: Length = 0,
    most: Length = LARGEST_INTEGER,
    kind: str = "an integer",
    error: type[Exception] = ValueError,
) -> Check:
    """An integer from least to most, both included."""

    def check(given: ParamContext, value: Any) -> None:
        lowest = least(given) if callable(least) else least
        highest = most(given) if callable(most) else most
        if type(value) is not int:
            raise _wrong(TypeError, f"be {kind} from {lowest} to {highest}", value)
        if not lowest <= value <= highest:
            raise _wrong(error, f"be {kind} from {lowest} to {highest}", value)

    return check


def whole_number(least: int, most: int) -> Check:
    """An integer, or a number that is equal to one."""
    check = integer(least, most, "a whole number")
    return lambda given, value: check(
        given, int(value) if type(value) is float and value.is_integer() else value
    )


def flag(_: ParamContext, value: Any) -> None:
    """True or False."""
    if type(value) is not bool:
        raise _wrong(TypeError, "be True or False", value)


def one_of(*allowed: str) -> Check:
    """One of some texts."""

    def check(_: ParamContext, value: Any) -> None:
        if not isinstance(value, str) or value not in allowed:
            raise _wrong(ValueError, f"be one of {', '.join(map(repr, allowed))}", value)

    return check


def optional(check: Check) -> Check:
    """None, or what another check takes."""
    return lambda given, value: None if value is None else check(given, value)


def fields(**checks: Check) -> Check:
    """A dictionary with these keys."""
    return lambda given, value: _check_fields(checks, given, value)


def many(check: Check, length: Length | None = None, *, least: int = 0) -> Check:
    """A list with as many elements as are wanted, each of which a check takes."""

    def check_all(given: ParamContext, value: Any) -> None:
        if not isinstance(value, (list, tuple)):
            raise _wrong(TypeError, "be a list", value)
        wanted = length(given) if callable(length) else length
        if wanted is not None and len(value) != wanted:
            raise InvalidParam(
                ValueError,
                f"must be a list of {wanted}, got {reprlib.repr(value)} with {len(value)}",
            )
        if len(value) < least:
            raise InvalidParam(
                ValueError, f"must be a list of at least {least}, got {reprlib.repr(value)}"
            )
        try:
            for place, each in enumerate(value):  # noqa: B007
                check(given, each)
        except InvalidParam as refused:
            refused.path = f"[{place}]{refused.path}"
            raise

    return check_all


def where_not_none(name: str, check: Check) -> Check:
    """A list with one element for each of another param, which stands before this one; None may
    stand where None stands there.
    """
    element = for_each(name, optional(check))

    def check_all(given: ParamContext, value: Any) -> None:
        element(given, value)
        for place, (other, each) in enumerate(zip(given.params[name], value, strict=True)):
            if other is not None and each is None:
                raise InvalidParam(
                    ValueError, f"must not be None at {place}, where {name!r} is not"
                )

    return check_all


def each_axis(check: Check) -> Check:
    """A list with one element for each spatial axis."""
    return many(check, ParamContext.dims)


def each_channel(check: Check) -> Check:
    """A list with one element for each channel of the image."""
    return many(check, lambda given: given.shape()[0])


def for_each(name: str, check: Check) -> Check:
    """A list with one element for each of another param, which stands before this one."""
    return many(check, lambda given: len(given.params[name]))


def channels_with(**checks: Check) -> dict[str, Check]:
    """Channels of the image in ``apply_to_channel``, and lists with one element for each of them."""
    return {"apply_to_channel": CHANNELS} | {
        name: for_each("apply_to_channel", check) for name, check in checks.items()
    }


def none_without_channels(check: Check) -> Check:
    """What a check takes; None where ``apply_to_channel``, which stands before it, is empty."""
    return lambda given, value: (
        None if value is None and not len(given.params["apply_to_channel"]) else check(given, value)
    )


def distinct(check: Check) -> Check:
    """What a check takes, without repetition."""

    def check_all(given: ParamContext, value: Any) -> None:
        check(given, value)
        if len(set(value)) < len(value):
            raise _wrong(ValueError, "not have an element twice", value)

    return check_all


def _wrong(kind: type[Exception], allowed: str, value: Any) -> InvalidParam:
    shown = reprlib.repr(value)
    return InvalidParam(
        kind,
        f"must {allowed}, got {shown}"
        + (f" of type {type(value).__name__}" if kind is TypeError else ""),
    )


#: A spatial axis.
axis = integer(0, lambda given: given.dims() - 1, "a spatial axis")
#: A channel of the image.
channel = integer(0, lambda given: given.shape()[0] - 1, "a channel", IndexError)
#: The same; -1 is the last one.
channel_from_either_end = integer(
    lambda given: -given.shape()[0], lambda given: given.shape()[0] - 1, "a channel", IndexError
)
#: Channels of the image, each once.
CHANNELS = distinct(many(channel))
#: Spatial axes, each once.
AXES = distinct(many(axis))
#: 64 bits, from which more is drawn.
KEY = integer(0, 2**64 - 1)
#: A place along an axis in voxels, also outside of the image. No index that follows from it
#: overflows.
PLACE = number(-1e9, 1e9)
#: A matrix of voxels to voxels: with 2**31 voxels along an axis, places stay within 64 bits.
MATRIX = each_axis(each_axis(number(-1e6, 1e6)))
#: Radians; `detaug.kernels.scalars` computes the sine of those.
ANGLE = number(-1e5, 1e5)
#: The standard deviation of a filter in voxels.
SIGMA = number(0, LARGEST_SIGMA)
#: An exponent of powers of intensities.
EXPONENT = number(above=0, most=LARGEST_EXPONENT)
