"""Two neighbours of an array read as one."""

# ruff: noqa: ARG001  (the signatures that Numba wants)

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
from numba import types
from numba.extending import intrinsic


def _load_pair(typing_context: Any, array: Any, index: Any) -> Any:
    """Read elements ``index`` and ``index + 1`` of a flat array as one unsigned integer.

    The array is float32 or int16. The first is the lower half, on a little-endian machine.
    """
    bits = 2 * array.dtype.bitwidth

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index = arguments
        data = context.make_array(signature.args[0])(context, builder, array).data
        address = builder.gep(data, [index], inbounds=True)
        loaded = builder.load(builder.bitcast(address, ir.IntType(bits).as_pointer()))
        # Bytes: a pair begins wherever an element does, so that it is aligned as one element is.
        loaded.align = bits // 16
        return loaded

    return types.Integer.from_bitwidth(bits, signed=False)(array, types.intp), generate


load_pair: Any = intrinsic(_load_pair)
