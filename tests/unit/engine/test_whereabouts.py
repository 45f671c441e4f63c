"""From a stack as Python's fault handler writes it to a place in the user's code."""

from __future__ import annotations

from pathlib import Path

import pytest

import detaug
from detaug.processes.whereabouts import place_of

ENGINE = Path(detaug.__file__).parent / "engine"


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        ([("mine.py", 6, "inner"), ("mine.py", 3, "outer")], "inner (mine.py:6), called from outer (mine.py:3)"),
        ([("mine.py", 3, "mine"), (ENGINE / "order.py", 9, "_call"), ("no.py", 1, "no")], "mine (mine.py:3)"),
        ([("<string>", 1, "f")], "f (<string>:1)"),
        ([(ENGINE / "slots.py", 1, "write")], f"write ({ENGINE / 'slots.py'}:1)"),
        ([("mine.py", 1, "again")] * 99, "again (mine.py:1), " + ", ".join(["called from again (mine.py:1)"] * 3)),
        ([], ""),
    ],
)
def test_the_users_frames_are_named_innermost_first(frames: list[tuple[str | Path, int, str]], place: str) -> None:
    lines = [f'  File "{file}", line {line} in {name}' for file, line, name in frames] or ["  <no Python frame>"]
    assert place_of("\n".join(["Current thread 0x00007f (most recent call first):", *lines, ""])) == place
