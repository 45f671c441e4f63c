"""Imports that are under way when batches are made, and the arguments that modules read."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from detaug import DeterministicAugmenter
from tests.support.preloaded import run_code
from tests.support.processes import Script, wait_until

pytestmark = pytest.mark.timeout(180)

MODULE = """
import sys
from detaug import DeterministicAugmenter

class Loader:
    def __iter__(self):
        return self
    def __next__(self):
        return 1

with DeterministicAugmenter(Loader(), None, int(sys.argv[1]), seed=1, stateless=True) as augmenter:
    assert next(augmenter) == 1
"""


def run(folder: Path, number: str) -> subprocess.CompletedProcess[str]:
    return run_code("import train", number, folder=folder, environment=os.environ, timeout=100)


def test_batches_that_are_made_while_their_module_is_imported_need_no_workers(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(MODULE)
    assert run(tmp_path, "0").returncode == 0
    ended = run(tmp_path, "2")
    assert ended.returncode != 0
    assert "the module 'train' makes batches while it is imported" in ended.stderr
    assert "Put what makes the batches into a function" in ended.stderr


def test_workers_have_the_programs_arguments(script: Callable[..., Script], start_method: str) -> None:
    body = """
        class Arguments(Loader):
            def __next__(self):
                return sys.argv
        with augmenter(Arguments(), check=False) as aug:
            print(next(aug) == sys.argv, sys.argv[1:])
    """
    ran = script(body, start_method, "--lr", "it's 0.1")
    ran.finish()
    assert ran.lines == [f"True {[start_method, '--lr', 'it' + chr(39) + 's 0.1']}"], ran.err


HALTED = """
import os, time
from collections.abc import Callable
from pathlib import Path
folder = Path(__file__).parent
if folder.joinpath("importing").exists():
    answer = "imported anew"
else:
    folder.joinpath("importing").touch()
    while not folder.joinpath("go on").exists():
        time.sleep(0.01)
    answer = "imported once"
"""


class ImportsHalted:
    def __iter__(self) -> ImportsHalted:
        return self

    def __next__(self) -> str:
        return str(importlib.import_module("halted_import").answer)


def test_module_that_another_thread_was_importing_is_imported_anew_by_forked_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "halted_import.py").write_text(HALTED)
    monkeypatch.syspath_prepend(tmp_path)
    importing = threading.Thread(target=importlib.import_module, args=("halted_import",))
    importing.start()
    try:
        wait_until((tmp_path / "importing").exists, "the import has begun")
        with DeterministicAugmenter(ImportsHalted(), None, 1, seed=1, check=False) as augmenter:
            assert next(augmenter) == "imported anew"
    finally:
        (tmp_path / "go on").touch()
        importing.join()
    assert sys.modules.pop("halted_import").answer == "imported once"
