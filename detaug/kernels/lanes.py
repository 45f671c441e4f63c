"""Eight float32 numbers as one value, so that a kernel says which numbers are worked on together; and two neighbours as one.

The compiler's own search for loops that may use vectors ends where a loop reads and writes more than a few places of one
array. Additions, subtractions and multiplications of lanes are rounded number by number, as IEEE 754 says: a CPU with
narrower or wider vectors gives the same bytes.
"""

# ruff: noqa: ARG001  (the signatures that Numba wants)

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir
from numba import types
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

from detaug.kernels.compiling import inlined

LANES = 8

_VECTOR = ir.VectorType(ir.FloatType(), LANES)


class _Lanes(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Lanes")


_lanes = _Lanes()


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        made_of: Any = super().__init__
        made_of(manager, kind, _VECTOR)


def _define(operation: Any, instruction: str) -> None:
    @type_callable(operation)
    def type_of(context: Any) -> Any:
        return lambda a, b: _lanes if isinstance(a, _Lanes) and isinstance(b, _Lanes) else None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return getattr(builder, instruction)(*arguments)

    lowering: Any = lower_builtin
    lowering(operation, _Lanes, _Lanes)(generate)


for _operation, _instruction in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul")):
    _define(_operation, _instruction)


def _intrinsic(function: Callable[..., Any]) -> Any:
    return intrinsic(function)


def _place(context: Any, builder: Any, kind: Any, seen_as: ir.Type, array: Any, index: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index], inbounds=True), seen_as.as_pointer())


def _places(numbers: list[int]) -> Any:
    return ir.Constant(ir.VectorType(ir.IntType(32), LANES), numbers)


@_intrinsic
def load(typing_context: Any, array: Any, index: Any) -> Any:
    """Elements ``index`` to ``index + LANES`` (excluded) of a flat float32 array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        loaded = builder.load(_place(context, builder, signature.args[0], _VECTOR, *arguments))
        loaded.align = 4
        return loaded

    return _lanes(array, types.intp), generate


@_intrinsic
def store(typing_context: Any, array: Any, index: Any, values: Any) -> Any:
    """Write lanes to elements ``index`` to ``index + LANES`` (excluded) of a flat float32 array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index, values = arguments
        stored = builder.store(values, _place(context, builder, signature.args[0], _VECTOR, array, index))
        stored.align = 4
        return context.get_dummy_value()

    return types.void(array, types.intp, _lanes), generate


@_intrinsic
def everywhere(typing_context: Any, number: Any) -> Any:
    """A float32 number in all lanes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), arguments[0], ir.IntType(32)(0))
        return builder.shuffle_vector(first, ir.Constant(_VECTOR, ir.Undefined), _places([0] * LANES))

    return _lanes(types.float32), generate


@_intrinsic
def transposed(typing_context: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
    """Eight lanes of what were the first, second ... numbers of eight lanes.

    Lanes of the first half are interleaved with those of the second, three times: each time the six bits that number an
    element by lanes and place are turned by one.
    """
    uniform: Any = types.UniTuple
    both = uniform(_lanes, LANES)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        low, high = ([n // 2 + LANES * (n % 2) for n in range(begin, begin + LANES)] for begin in (0, LANES))
        rows = list(arguments)
        for _ in range(3):
            pairs = zip(rows[: LANES // 2], rows[LANES // 2 :], strict=True)
            rows = [builder.shuffle_vector(x, y, _places(half)) for x, y in pairs for half in (low, high)]
        return context.make_tuple(builder, both, rows)

    return both(*[_lanes] * LANES), generate


@_intrinsic
def load_pair(typing_context: Any, array: Any, index: Any) -> Any:
    """Elements ``index`` and ``index + 1`` of a flat float32 or int16 array as the lower and the upper half of one unsigned
    integer, on a little-endian machine.
    """
    bits = 2 * array.dtype.bitwidth

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        loaded = builder.load(_place(context, builder, signature.args[0], ir.IntType(bits), *arguments))
        loaded.align = bits // 16
        return loaded

    return types.Integer.from_bitwidth(bits, signed=False)(array, types.intp), generate


@inlined
def _on_lines(starts: Any, c: Any, k: Any) -> Any:
    """Voxel k of lines c to c + 7."""
    return (
        starts[c] + k, starts[c + 1] + k, starts[c + 2] + k, starts[c + 3] + k, starts[c + 4] + k, starts[c + 5] + k,
        starts[c + 6] + k, starts[c + 7] + k,
    )  # fmt: skip


@inlined
def _on_rows(at: Any, pitch: Any) -> Any:
    return (
        at, at + pitch, at + 2 * pitch, at + 3 * pitch, at + 4 * pitch, at + 5 * pitch, at + 6 * pitch, at + 7 * pitch
    )  # fmt: skip


@inlined
def _transpose(source: Any, here: Any, out: Any, there: Any) -> None:
    """Eight times eight elements."""
    rows = transposed(
        load(source, here[0]), load(source, here[1]), load(source, here[2]), load(source, here[3]),
        load(source, here[4]), load(source, here[5]), load(source, here[6]), load(source, here[7]),
    )  # fmt: skip
    store(out, there[0], rows[0])
    store(out, there[1], rows[1])
    store(out, there[2], rows[2])
    store(out, there[3], rows[3])
    store(out, there[4], rows[4])
    store(out, there[5], rows[5])
    store(out, there[6], rows[6])
    store(out, there[7], rows[7])


@inlined
def lines_to_columns(
    source: Any, starts: Any, shift: Any, count: Any, n: Any, work: Any, first: Any, pitch: Any
) -> None:
    """Voxel k < n of line c < count goes from ``source[starts[c] + shift + k]`` to ``work[first + k * pitch + c]``."""
    whole, rest = count // LANES * LANES, n // LANES * LANES
    for c in range(0, whole, LANES):
        for k in range(0, rest, LANES):
            _transpose(source, _on_lines(starts, c, shift + k), work, _on_rows(first + k * pitch + c, pitch))
    for c in range(count):
        for k in range(rest if c < whole else 0, n):
            work[first + k * pitch + c] = source[starts[c] + shift + k]


@inlined
def columns_to_lines(work: Any, first: Any, pitch: Any, starts: Any, shift: Any, count: Any, n: Any, out: Any) -> None:
    """The way back."""
    whole, rest = count // LANES * LANES, n // LANES * LANES
    for c in range(0, whole, LANES):
        for k in range(0, rest, LANES):
            _transpose(work, _on_rows(first + k * pitch + c, pitch), out, _on_lines(starts, c, shift + k))
    for c in range(count):
        for k in range(rest if c < whole else 0, n):
            out[starts[c] + shift + k] = work[first + k * pitch + c]
