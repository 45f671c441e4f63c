"""Loads that Numba has no words for: two neighbouring elements at once, and a line of the cache ahead of its use."""

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


def _prefetcher(name: str, written: int) -> Any:
    def ask_for(typing_context: Any, array: Any, index: Any) -> Any:  # noqa: ARG001
        """Ask for the line of the cache that an element of an array lies in, which is numbered from the array's first one on.
        Changes no value, and cannot fail: the number may be any."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            address, number = ir.IntType(8).as_pointer(), ir.IntType(32)
            element = builder.bitcast(builder.gep(data, [arguments[1]]), address)
            kind = ir.FunctionType(ir.VoidType(), [address, number, number, number])
            ask = builder.module.declare_intrinsic("llvm.prefetch", [address], kind)
            builder.call(ask, [element, number(written), number(3), number(1)])  # kept at hand, data
            return context.get_dummy_value()

        return types.void(array, types.intp), generate

    ask_for.__name__ = name
    return intrinsic(ask_for)


#: Of an element that will be read, and of one that will be written.
prefetch: Any = _prefetcher("prefetch", 0)
prefetch_to_write: Any = _prefetcher("prefetch_to_write", 1)
