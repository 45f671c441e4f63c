"""Loads that Numba has no words for: two neighbouring elements at once."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
from numba import types
from numba.extending import intrinsic


def _pair_loader(name: str, bits: int, result: Any) -> Any:
    def load(context: Any, array: Any, index: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            element = builder.gep(data, [arguments[1]], inbounds=True)
            loaded = builder.load(builder.bitcast(element, ir.IntType(bits).as_pointer()))
            loaded.align = bits // 16
            return loaded

        return result(array, types.intp), generate

    load.__name__ = name
    return intrinsic(load)


# Elements ``index`` and ``index + 1`` of a flat float32 or int16 array, as the halves of one integer (the second is the
# upper half on a little-endian machine).
load_float_pair = _pair_loader("load_float_pair", 64, types.uint64)
load_label_pair = _pair_loader("load_label_pair", 32, types.uint32)
