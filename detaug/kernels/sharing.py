"""Which kernel an interpreter compiles next, where several do.

Functions that kernels have in common (`detaug.kernels.compiling.inlined`, `shared`) are compiled once in each interpreter
that needs them. So an interpreter goes on with kernels that share code with those it has, and leaves to the others what
shares code with theirs, as long as there is enough to do for all; else the longest come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from detaug.kernels.compiling import Kernel

#: Functions and the length of each, in bytes of bytecode.
Parts = Mapping[Callable[..., Any], int]


def parts_of(kernel: Kernel) -> Parts:
    """The kernel's function and all that it calls, of those that are compiled with it."""
    found: dict[Callable[..., Any], int] = {}
    waiting: list[Callable[..., Any]] = [kernel.dispatcher.py_func]
    while waiting:
        function = waiting.pop()
        if function not in found:
            code = function.__code__
            found[function] = len(code.co_code)
            used: list[Any] = [function.__globals__.get(name) for name in code.co_names]
            used += [cell.cell_contents for cell in function.__closure__ or ()]
            waiting += [each.py_func for each in used if hasattr(each, "py_func")]
    found[kernel.dispatcher.py_func] *= len(kernel.signatures)
    return found


def work_of(kernels: Iterable[Kernel]) -> int:
    """Bytes of bytecode that are compiled for kernels, shared ones once: the time goes by these."""
    lengths: dict[Callable[..., Any], int] = {}
    for each in kernels:
        for function, length in parts_of(each).items():
            lengths[function] = max(length, lengths.get(function, 0))
    return sum(lengths.values())


def choose(waiting: Iterable[Kernel], parts: Mapping[Kernel, Parts], ours: Parts, others: Sequence[Parts]) -> Kernel:
    """The kernel that an interpreter compiles next.

    Args:
        waiting: kernels, at least one.
        parts: of each of them, from `parts_of`.
        ours: what this interpreter has compiled.
        others: what each of the others has.
    """
    lengths = {each: sum(parts[each].values()) for each in waiting}
    longest = max(lengths, key=lambda each: lengths[each])
    if lengths[longest] * (1 + len(others)) > sum(lengths.values()):
        return longest  # the others would wait for whoever began it last
    return max(
        lengths,
        key=lambda each: (
            _shared(parts[each], ours) - max((_shared(parts[each], their) for their in others), default=0),
            lengths[each],
        ),
    )


def _shared(one: Parts, other: Parts) -> int:
    return sum(length for function, length in one.items() if function in other)
