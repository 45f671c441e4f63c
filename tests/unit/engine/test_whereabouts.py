"""From a stack as Python's fault handler writes it to a place in the user's code."""

from __future__ import annotations

from pathlib import Path

import detaug
from detaug.processes.whereabouts import place_of

ENGINE = Path(detaug.__file__).parent


def stack(*frames: tuple[Path, int, str]) -> str:
    lines = [f'  File "{file}", line {line} in {name}' for file, line, name in frames]
    return "\n".join(["Current thread 0x00007f (most recent call first):", *lines, ""])


def test_the_users_frames_are_named_innermost_first(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    text = stack(
        (file, 6, "inner"), (file, 3, "__call__"), (ENGINE / "pipeline" / "producer.py", 3, "_call"), (file, 1, "no")
    )
    assert place_of(text) == f"inner ({file}:6), called from __call__ ({file}:3)"


def test_a_deep_stack_is_cut(tmp_path: Path) -> None:
    text = stack(*((tmp_path / "mine.py", line, "again") for line in range(1, 100)))
    assert place_of(text).count("called from") == 3


def test_file_that_is_not_there_still_gives_a_place() -> None:
    assert place_of(stack((Path("<string>"), 1, "f"))) == "f (<string>:1)"


def test_engines_own_code_is_named_where_nothing_of_the_users_runs() -> None:
    assert "write" in place_of(stack((ENGINE / "engine" / "slots.py", 1, "write")))


def test_text_without_frames_is_no_place() -> None:
    assert place_of("Current thread 0x1 (most recent call first):\n  <no Python frame>\n") == ""
