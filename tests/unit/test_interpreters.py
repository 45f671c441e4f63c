"""The code that fresh interpreters run."""

from __future__ import annotations

import gc
import sys
import types
from typing import Any

import pytest

from detaug.processes.interpreters import code_of


def test_main_is_called_with_the_arguments_and_garbage_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    class Module(types.ModuleType):
        @property
        def main(self) -> Any:
            seen.append(gc.isenabled())
            return lambda *arguments: seen.append((arguments, gc.isenabled()))

    monkeypatch.setitem(sys.modules, "of_ours", Module("of_ours"))
    exec(code_of("of_ours", 3, "it's", b"\0"), {})
    assert seen[0] is False, "not while it is imported"
    assert seen[-1] == ((3, "it's", b"\0"), True)
