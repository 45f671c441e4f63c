"""Lines brought beside each other, so that the same voxel of many lines is worked on at once, and back."""

from __future__ import annotations

from typing import Any

from detaug.kernels.compiling import inlined
from detaug.kernels.lanes import LANES, load, store, transposed


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
