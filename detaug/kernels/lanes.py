"""Eight float32 numbers as one value, so that a kernel says which numbers are worked on together.

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


def _place(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index], inbounds=True), _VECTOR.as_pointer())


def _places(numbers: list[int]) -> Any:
    return ir.Constant(ir.VectorType(ir.IntType(32), LANES), numbers)


@_intrinsic
def load(typing_context: Any, array: Any, index: Any) -> Any:
    """Elements ``index`` to ``index + LANES`` (excluded) of a flat float32 array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        loaded = builder.load(_place(context, builder, signature.args[0], *arguments))
        loaded.align = 4
        return loaded

    return _lanes(array, types.intp), generate


@_intrinsic
def store(typing_context: Any, array: Any, index: Any, values: Any) -> Any:
    """Write lanes to elements ``index`` to ``index + LANES`` (excluded) of a flat float32 array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index, values = arguments
        stored = builder.store(values, _place(context, builder, signature.args[0], array, index))
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
