"""In a helper that was just forked: let go of the batches that the program's functions hold at that moment.

A helper keeps what it has mapped for as long as it lives, also batches that the program has let go long since. The functions
that called for the helper never go on in it, so their variables are not needed there. A batch that the pipeline, a closure or a
module's variable holds as well stays mapped.
"""

from __future__ import annotations

import ctypes
import inspect
import itertools
import sys
from types import FrameType
from typing import Any

import numpy as np
import torch

from detaug.transport.slots import let_go_in_a_fork

#: A variable with more objects in it is no batch.
_MOST = 10_000
#: What a batch consists of beside arrays: objects whose end has no consequences.
_SCALARS = (type(None), bool, int, float, complex, str, bytes, np.bool_, np.number)


def let_go_of_callers_batches(frame: FrameType | None) -> None:
    """That of this frame and all that called it, and of every engine."""
    spans = let_go_in_a_fork()
    while spans and frame is not None:
        code = frame.f_code
        if code.co_flags & inspect.CO_OPTIMIZED:  # else a module's, whose variables its functions may use
            variables = frame.f_locals
            for name in set(code.co_varnames).difference(code.co_cellvars).intersection(variables):
                if _is_batch(variables[name], spans):
                    variables[name] = None
            if sys.version_info < (3, 13):  # where a frame's variables are a copy
                ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), 0)
        frame = frame.f_back


def _is_batch(value: Any, spans: list[tuple[int, int]]) -> bool:
    """Whether it is arrays and scalars in plain containers, and one of the arrays lies there."""
    todo, found = [value], False
    for number, each in enumerate(todo):
        if number > _MOST:
            return False
        if type(each) in (list, tuple, dict):
            todo.extend(itertools.islice(each.values() if isinstance(each, dict) else each, _MOST))
        elif type(each) is np.ndarray and not each.dtype.hasobject:
            address = each.__array_interface__["data"][0]
            found = found or any(start <= address < end for start, end in spans)
        elif type(each) is torch.Tensor and each.device.type == "cpu" and each.layout is torch.strided:
            found = found or any(start <= each.data_ptr() < end for start, end in spans)
        elif not isinstance(each, _SCALARS):
            return False
    return found
