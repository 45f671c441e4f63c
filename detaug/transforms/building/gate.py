"""The one place where params are validated: drawn ones, ones made by hand, ones read from JSON.

A transform declares what its params may be where it uses them, so that `Transform.change` and the
kernels that it calls get nothing else:

    @takes(apply_to_channel=CHANNELS, sigmas=for_each("apply_to_channel", number(0)), key=KEY)
    def change(self, workspace: Workspace, params: Params) -> None: ...

Kernels check nothing: an index computed from NaN, from an infinity or from an axis that does not
exist would address memory outside the array.
"""

from __future__ import annotations

import functools
import math
import reprlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

#: A sample's keys whose values are arrays of shape (channels, *space).
VOXEL_KEYS = ("image", "regression_target", "segmentation")

# From a caller to a kernel:
#
#   drawn, written by hand, or read from JSON -> `takes` around `Transform.change` -> kernel
#                                                  |
#                                                  `InvalidParam` -> KeyError, TypeError ... by name

#: The largest number that params may hold; a float32 still holds it.
LARGEST = 3e38
LARGEST_INTEGER = 2**31 - 1
#: Voxels. Wider filters need more memory and time than machines have.
LARGEST_SIGMA = 250.0
LARGEST_EXPONENT = 64.0
#: Levels of lists and dicts in a value; nested compositions are all within one value.
_MAX_LEVELS = 100


class ParamContext(NamedTuple):
    """The context of a check: the transform, all of its params, and the arrays' shapes by role."""

    transform: Any
    params: Any
    shapes: Mapping[str, Any]

    def shape(self) -> tuple[int, ...]:
        """Return (channels, *space) of the image, or of the first array if there is no image."""
        for key in VOXEL_KEYS:
            if self.shapes.get(key):
                return tuple(self.shapes[key])
        return ()

    def dims(self) -> int:
        """Return the number of spatial axes."""
        return len(self.shape()) - 1

    def num_channels(self) -> int:
        """Return the number of channels."""
        return self.shape()[0]


#: Raises `InvalidParam` for a value that is not allowed. It knows Python's numbers, lists and
#: tuples.
Check = Callable[[ParamContext, Any], None]
Length = int | Callable[[ParamContext], int]


class InvalidParam(Exception):
    """A value that params may not have.

    Attributes:
        kind: the class of the error that the user gets.
        path: where the value is in the params, as in ``['boxes'][0]``; built from the inside out.
    """

    def __init__(self, kind: type[Exception], text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.path = ""


def takes(**checks: Check) -> Callable[[Callable[..., None]], Any]:
    """Declare, for `Transform.change`, the params that it takes and a check of each.

    NumPy's numbers and arrays are accepted as Python's numbers and lists; `change` gets the latter.

    Raises:
        KeyError: a param is missing.
        IndexError: a channel that does not exist.
        TypeError, ValueError: any other value that a check refuses, or an unknown param.
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
    """Return params in the form that the transform's `change` gets; raise errors as `takes`.

    Args:
        transform: the transform that the params are for; errors name its class.
        params: a dict by the params' names.
        shapes: the arrays' shapes by role, (C, X, Y[, Z]).
        checks: a check for each param.
    """
    try:
        _check_fields(checks, ParamContext(transform, params, shapes), params)
    except InvalidParam:
        # The reason may be a number of NumPy's. Below, numbers are made plain and checked again.
        pass
    else:
        # Params from `sample` pass as they are: copying them takes 5 % of the time of a 2-D batch.
        return params
    try:
        # NumPy's numbers of few bits would overflow in what is computed from them.
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
    """Return the same value in Python's own numbers and lists.

    Raises:
        InvalidParam: lists in it are nested too deeply, or contain themselves.
    """
    try:
        return _plain(value, 0)
    except _TooDeep:
        text = f"must have at most {_MAX_LEVELS} levels of lists, got {reprlib.repr(value)}"
        raise InvalidParam(ValueError, text) from None


class _TooDeep(Exception):
    """A value has more levels of lists and dicts than are allowed."""


def _plain(value: Any, level: int) -> Any:
    if level > _MAX_LEVELS:
        raise _TooDeep
    if isinstance(value, dict):
        return {name: _plain(element, level + 1) for name, element in value.items()}
    if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim):
        return [_plain(element, level + 1) for element in value]
    if isinstance(value, np.floating):
        return float(value)
    if isinstance(value, np.generic):
        return value.item()
    return value


def _check_fields(checks: Mapping[str, Check], context: ParamContext, value: Any) -> None:
    if not isinstance(value, dict):
        raise _refused(TypeError, "be a dict, as sample gives it", value)
    for name, check in checks.items():
        if name in value:
            try:
                check(context, value[name])
            except InvalidParam as refused:
                refused.path = f"[{name!r}]{refused.path}"
                raise
        elif _is_needed(check, context):
            present = _list_names(value) or "nothing"
            raise InvalidParam(KeyError, f"have no {name!r}, but {present}")
    if not value.keys() <= checks.keys():
        known = _list_names(checks) or "nothing"
        surplus = _list_names(name for name in value if name not in checks)
        raise InvalidParam(ValueError, f"must have {known} only, got {surplus} as well")


def _list_names(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _is_needed(check: Any, context: ParamContext) -> bool:
    """Return whether a param without a value is an error (see `needed_if`)."""
    return not hasattr(check, "needed") or check.needed(context)


def needed_if(needed: Callable[[ParamContext], bool], check: Check) -> Check:
    """Return a check of a param that may be left out unless `needed` returns True."""
    # A copy, because the check itself may belong to other params as well.
    check_if_present = functools.partial(check)
    check_if_present.needed = needed  # type: ignore[attr-defined]
    return check_if_present


def anything(_: ParamContext, value: Any) -> None:
    """Accept any value: it is checked elsewhere."""


def number(least: float = -LARGEST, most: float = LARGEST, *, above: float | None = None) -> Check:
    """Return a check for a finite number from least (or above another) to most, both included."""
    if above is not None:
        # The next float above the bound: the check below includes both ends.
        least = math.nextafter(above, math.inf)
        allowed = f"be greater than {above:g} and at most {most:g}"
    elif (least, most) == (-LARGEST, LARGEST):
        allowed = "be a finite number"
    else:
        allowed = f"be a number from {least:g} to {most:g}"

    def check(_: ParamContext, value: Any) -> None:
        if type(value) is not float and type(value) is not int:
            raise _refused(TypeError, allowed, value)
        # The comparison is written so that NaN is refused, too.
        if not least <= value <= most:
            raise _refused(ValueError, allowed, value)

    return check


def integer(
    least: Length = 0,
    most: Length = LARGEST_INTEGER,
    kind: str = "an integer",
    error: type[Exception] = ValueError,
) -> Check:
    """Return a check for an integer from least to most, both included.

    Args:
        least: the smallest allowed integer, or a function that returns it for a context.
        most: the largest, likewise.
        kind: how messages call such an integer.
        error: the class of the error for an integer out of range.
    """

    def check(context: ParamContext, value: Any) -> None:
        lowest = _in_context(least, context)
        highest = _in_context(most, context)
        # Not `isinstance`: True is an int, too, and would be taken for 1.
        if type(value) is not int:
            raise _refused(TypeError, f"be {kind} from {lowest} to {highest}", value)
        if not lowest <= value <= highest:
            raise _refused(error, f"be {kind} from {lowest} to {highest}", value)

    return check


def _in_context(length: Length, context: ParamContext) -> int:
    if callable(length):
        return length(context)
    return length


def whole_number(least: int, most: int) -> Check:
    """Return a check for an integer, or for a float that is equal to an integer."""
    check_integer = integer(least, most, "a whole number")

    def check(context: ParamContext, value: Any) -> None:
        if type(value) is float and value.is_integer():
            value = int(value)
        check_integer(context, value)

    return check


def flag(_: ParamContext, value: Any) -> None:
    """Accept True and False only."""
    if type(value) is not bool:
        raise _refused(TypeError, "be True or False", value)


def one_of(*allowed: str) -> Check:
    """Return a check for one of some texts."""

    def check(_: ParamContext, value: Any) -> None:
        if not isinstance(value, str) or value not in allowed:
            raise _refused(ValueError, f"be one of {_list_names(allowed)}", value)

    return check


def optional(check: Check) -> Check:
    """Return a check for None or anything that another check accepts."""

    def check_unless_none(context: ParamContext, value: Any) -> None:
        if value is not None:
            check(context, value)

    return check_unless_none


def fields(**checks: Check) -> Check:
    """Return a check for a dict with these keys."""
    return functools.partial(_check_fields, checks)


def many(check: Check, length: Length | None = None, *, least: int = 0) -> Check:
    """Return a check for a list, each element of which another check accepts.

    Args:
        check: the check of each element.
        length: the number of elements, or a function that returns it for a context. None: any.
        least: the least number of elements.
    """

    def check_all(context: ParamContext, value: Any) -> None:
        if not isinstance(value, (list, tuple)):
            raise _refused(TypeError, "be a list", value)
        # The length may depend on the sample, for example on its number of channels.
        expected = None if length is None else _in_context(length, context)
        if expected is not None and len(value) != expected:
            raise InvalidParam(
                ValueError,
                f"must be a list of {expected}, got {reprlib.repr(value)} with {len(value)}",
            )
        if len(value) < least:
            raise InvalidParam(
                ValueError, f"must be a list of at least {least}, got {reprlib.repr(value)}"
            )
        # One try around the loop: entering it for each element would cost more than most checks.
        index = 0
        try:
            for index, element in enumerate(value):  # noqa: B007
                check(context, element)
        except InvalidParam as refused:
            refused.path = f"[{index}]{refused.path}"
            raise

    return check_all


def where_not_none(name: str, check: Check) -> Check:
    """Return a check for a list as `for_each`; None is allowed where the other param has None.

    Args:
        name: the other param, which is declared before this one.
        check: the check of each element that is not None.
    """
    # Elements may be None; the check below refuses None where the other param has a value.
    check_elements = for_each(name, optional(check))

    def check_all(context: ParamContext, value: Any) -> None:
        check_elements(context, value)
        pairs = zip(context.params[name], value, strict=True)
        for index, (other, element) in enumerate(pairs):
            if other is not None and element is None:
                raise InvalidParam(
                    ValueError, f"must not be None at {index}, where {name!r} is not"
                )

    return check_all


def each_axis(check: Check) -> Check:
    """Return a check for a list with one element for each spatial axis."""
    return many(check, ParamContext.dims)


def each_channel(check: Check) -> Check:
    """Return a check for a list with one element for each channel of the image."""
    return many(check, ParamContext.num_channels)


def for_each(name: str, check: Check) -> Check:
    """Return a check for a list with one element for each of another param, declared before it."""

    def length(context: ParamContext) -> int:
        return len(context.params[name])

    return many(check, length)


def channels_with(**checks: Check) -> dict[str, Check]:
    """Return checks for ``apply_to_channel`` and for lists with one element per channel in it."""
    # Checked first, because the other lists must have its length.
    all_checks = {"apply_to_channel": CHANNELS}
    for name, check in checks.items():
        all_checks[name] = for_each("apply_to_channel", check)
    return all_checks


def none_without_channels(check: Check) -> Check:
    """Return a check that accepts None, too, if ``apply_to_channel`` (declared before) is empty."""

    def check_unless_empty(context: ParamContext, value: Any) -> None:
        if value is None and len(context.params["apply_to_channel"]) == 0:
            return
        check(context, value)

    return check_unless_empty


def distinct(check: Check) -> Check:
    """Return a check for a list that another check accepts, without repeated elements."""

    def check_all(context: ParamContext, value: Any) -> None:
        check(context, value)
        if len(set(value)) < len(value):
            raise _refused(ValueError, "not have an element twice", value)

    return check_all


def _refused(kind: type[Exception], allowed: str, value: Any) -> InvalidParam:
    text = f"must {allowed}, got {reprlib.repr(value)}"
    if kind is TypeError:
        text += f" of type {type(value).__name__}"
    return InvalidParam(kind, text)


def _last_axis(context: ParamContext) -> int:
    return context.dims() - 1


def _last_channel(context: ParamContext) -> int:
    return context.num_channels() - 1


def _first_channel_from_end(context: ParamContext) -> int:
    return -context.num_channels()


#: A spatial axis.
axis = integer(0, _last_axis, "a spatial axis")
#: A channel of the image.
channel = integer(0, _last_channel, "a channel", IndexError)
#: A channel of the image; -1 is the last one.
channel_from_either_end = integer(_first_channel_from_end, _last_channel, "a channel", IndexError)
#: Channels of the image, each once.
CHANNELS = distinct(many(channel))
#: Spatial axes, each once.
AXES = distinct(many(axis))
#: 64 bits, the seed of a field of random numbers or of a Generator.
KEY = integer(0, 2**64 - 1)
#: A position along an axis in voxels, also outside the image. No index computed from it overflows.
PLACE = number(-1e9, 1e9)
#: A matrix from voxels to voxels. With 2**31 voxels along an axis, positions stay within 64 bits.
MATRIX = each_axis(each_axis(number(-1e6, 1e6)))
#: Radians; the range in which `detaug.kernels.scalars` computes sines.
ANGLE = number(-1e5, 1e5)
#: The standard deviation of a filter in voxels.
SIGMA = number(0, LARGEST_SIGMA)
#: An exponent of powers of intensities.
EXPONENT = number(above=0, most=LARGEST_EXPONENT)
