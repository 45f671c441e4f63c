"""Copying into memory that this process does not read again: `StreamingCopy`.

An ordinary copy reads each line of its target before it overwrites it, and fills the caches with what another process is to
read. Non-temporal stores do neither: 25 MB take a third less time, and what runs next finds its own data still there. The C
library uses them from a size on that the machine's caches tell; on a virtual one that may be 250 MB. So the copy is compiled
here, by the compiler that Numba brings, which needs no Numba, 40 ms of processor time, and 6 MB.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from detaug.memory.blocks import Bytes
from detaug.memory.layout import ALIGNMENT

#: Smaller arrays (bytes) are copied in the ordinary way: they may still be in a cache when they are read.
_LARGE = 2**20
#: So much (bytes) has been copied in the ordinary way before the other is compiled: a short run has nothing of it.
_WORTH_COMPILING = 256 * 2**20
_VECTOR_BYTES, _UNROLLED = 32, 4
_STRIDE = _VECTOR_BYTES * _UNROLLED

#: Called with two addresses, the target's a multiple of `_VECTOR_BYTES`, and a positive number of bytes, a multiple of `_STRIDE`.
_Function = Callable[[int, int, int], None]


class StreamingCopy:
    """Copies bytes; large arrays, once enough of them have been, past the caches.

    Args:
        worth_compiling: bytes that are copied in the ordinary way before.
    """

    def __init__(self, worth_compiling: int = _WORTH_COMPILING) -> None:
        self._worth_compiling = worth_compiling
        self._copied = 0
        self._function: _Function | None = None
        self._possible = True

    @property
    def streams(self) -> bool:
        """Whether it is compiled."""
        return self._function is not None

    def __call__(self, target: Bytes, source: Bytes) -> None:
        """Copy contiguous bytes to as many others, which they do not overlap."""
        size = source.nbytes
        if size < _LARGE or not self._is_ready(size):
            np.copyto(target, source)
            return
        to, start = (array.__array_interface__["data"][0] for array in (target, source))
        head = -to % ALIGNMENT
        middle = (size - head) // _STRIDE * _STRIDE
        assert self._function is not None
        self._function(to + head, start + head, middle)
        for part in (slice(0, head), slice(head + middle, size)):
            np.copyto(target[part], source[part])

    def _is_ready(self, size: int) -> bool:
        if self._function is not None:
            return True
        if self._possible:
            self._copied += size
            if self._copied > self._worth_compiling:
                self._possible = False
                self._function = _compiled()
        return self._function is not None


def _compiled() -> _Function | None:
    """None: this machine has no compiler for it."""
    try:
        return _compile()
    except Exception:  # then as before
        return None


def _compile() -> _Function:
    import llvmlite.binding as llvm  # not before there is a need for it

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(_assembly())
    module.verify()
    features = llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(llvm.get_host_cpu_name(), features, opt=2)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    function: Any = kind(engine.get_function_address("copy"))
    function.engine = engine  # which owns the code
    return function  # type: ignore[no-any-return]


def _assembly() -> str:
    """``copy(to, start, size)``: `_UNROLLED` vectors in each round, and at the end a fence, behind which all can be seen."""
    import llvmlite.ir as ir

    number = ir.IntType(64)
    vector = ir.VectorType(number, _VECTOR_BYTES // 8).as_pointer()
    module = ir.Module("copy")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [number] * 3), "copy")
    to, start, size = function.args
    entry, loop, end = (function.append_basic_block(name) for name in ("entry", "loop", "end"))
    ir.IRBuilder(entry).branch(loop)
    builder = ir.IRBuilder(loop)
    done = builder.phi(number)
    loads = [
        builder.inttoptr(builder.add(start, _plus(builder, done, at)), vector)
        for at in range(0, _STRIDE, _VECTOR_BYTES)
    ]
    stores = [
        builder.inttoptr(builder.add(to, _plus(builder, done, at)), vector) for at in range(0, _STRIDE, _VECTOR_BYTES)
    ]
    past_the_caches = module.add_metadata([ir.IntType(32)(1)])
    for value, place in zip([builder.load(place, align=1) for place in loads], stores, strict=True):
        builder.store(value, place, align=_VECTOR_BYTES).set_metadata("nontemporal", past_the_caches)
    then = _plus(builder, done, _STRIDE)
    done.add_incoming(number(0), entry)
    done.add_incoming(then, loop)
    builder.cbranch(builder.icmp_unsigned("<", then, size), loop, end)
    builder = ir.IRBuilder(end)
    builder.fence("seq_cst")
    builder.ret_void()
    return str(module)


def _plus(builder: Any, value: Any, number: int) -> Any:
    return builder.add(value, value.type(number))
