"""The code that fresh interpreters run."""

from __future__ import annotations

import gc
import sys
import types
from typing import Any

import pytest

from detaug.processes.interpreters import code_of


def test_main_is_called_with_the_arguments_and_garbage_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    module = types.ModuleType("of_ours")
    module.main = lambda *arguments: called.append((arguments, gc.isenabled()))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "of_ours", module)
    exec(code_of("of_ours", 3, "it's", b"\0"), {})
    assert called == [((3, "it's", b"\0"), True)]


def test_nothing_is_looked_for_while_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    class Module(types.ModuleType):
        @property
        def main(self) -> Any:
            seen.append(gc.isenabled())
            return lambda: None

    monkeypatch.setitem(sys.modules, "of_ours", Module("of_ours"))
    exec(code_of("of_ours"), {})
    assert seen[0] is False
    assert gc.isenabled()
